#include "tools/muster-launch/verify/stderr_capture.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tools/muster-launch/verify/children.h"

namespace muster::cli {
namespace {

TEST(StderrCapture, IsWhatChildrenSayInTheOrderTheySayIt) {
  const std::string path = testing::TempDir() + "/verify_stderr_capture_test.err";
  const launch::HeldSignals held;
  Children children(held);
  auto said = StderrCapture::open(path).value();
  EXPECT_EQ(said.news(), "");
  for (const char* const word : {"one", "two"}) {
    const std::string script = fmt::format("echo {} >&2", word);
    const pid_t pid = children.start("/bin/sh", {"-c", script}, {.err = said.descriptor()}).value();
    ASSERT_TRUE(children.wait(pid, [] {}).ok());
    EXPECT_EQ(said.news(), fmt::format("{}\n", word)) << "only what is new";
  }
  auto again = StderrCapture::open(path).value();
  EXPECT_EQ(again.news(), "") << "a new file";
}

TEST(StderrCapture, NeedsAPlace) { EXPECT_FALSE(StderrCapture::open("/nonexistent/err").ok()); }

}  // namespace
}  // namespace muster::cli
