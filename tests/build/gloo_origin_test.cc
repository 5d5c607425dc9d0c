// Proves where Gloo's functions come from in a program that also links libtorch. Built three times:
// as every program of ours is linked, with the libraries named in a careless order, and
// (WRONG_ORDER) around FindLibtorch.cmake with libtorch first, where the check must complain.
// Never calls into Gloo: in the wrong program that would crash.
#include <dlfcn.h>

#include <string>

#include <gloo/allreduce.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/symbol_origin.h"

namespace muster {
namespace {

const void* gloo_allreduce() {
  return function_address(static_cast<void (*)(const gloo::AllreduceOptions&)>(&gloo::allreduce));
}

#ifndef WRONG_ORDER

TEST(GlooOriginTest, GlooComesFromTheSystemsLibrary) {
  const Status status = check_symbol_origin("gloo::allreduce", gloo_allreduce(), "libgloo");
  EXPECT_TRUE(status.ok()) << status.error().message();
}

// Without libtorch in the process the test above would prove nothing.
TEST(GlooOriginTest, LibtorchIsLoaded) {
  void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  ASSERT_NE(torch, nullptr);
  dlclose(torch);
}

#else

// Debian's own libtorch uses the system's Gloo and exports none; then no order is wrong.
bool libtorch_exports_gloo() {
  Dl_info here;
  if (dladdr(gloo_allreduce(), &here) == 0 || here.dli_sname == nullptr) return false;
  void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch == nullptr) return false;
  const void* copy = dlsym(torch, here.dli_sname);
  dlclose(torch);
  if (copy == nullptr) return false;
  const Result<std::string> origin = symbol_origin(copy);
  return origin.ok() && origin->find("libtorch_cpu") != std::string::npos;
}

TEST(GlooOriginTest, TheCheckNoticesLibtorchsCopy) {
  if (!libtorch_exports_gloo()) GTEST_SKIP() << "this libtorch exports no Gloo of its own";
  const Status status = check_symbol_origin("gloo::allreduce", gloo_allreduce(), "libgloo");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind(), ErrorKind::kMachine);
  EXPECT_THAT(status.error().message(), ::testing::HasSubstr("libtorch_cpu"));
}

#endif

}  // namespace
}  // namespace muster
