// Which library a symbol really came from.
//
// Two libraries of one process may define the same name; the dynamic linker then gives everyone the
// one that was loaded first, without a word. libtorch's wheel exports a private copy of Gloo that
// differs from the system's Gloo we compile against: calling it crashes at best. The build puts the
// right one first (cmake/FindLibtorch.cmake); a program that uses Gloo asks here, at its start,
// whether that worked:
//
//   check_symbol_origin("gloo::allreduce", function_address(&gloo::allreduce), "libgloo")
//
// Pure questions to the dynamic linker; safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "muster/base/result.h"

namespace muster {

// The path of the program or shared library that holds `address`, a function or a variable with
// static storage. An error (kInternal) if none does, as for the heap or the stack.
Result<std::string> symbol_origin(const void* address);

// Good when `address` lies in a file whose name starts with `library` ("libgloo" is met by
// libgloo.so.0). Otherwise kMachine, saying where `symbol` came from and what to do.
Status check_symbol_origin(std::string_view symbol, const void* address, std::string_view library);

// A function's address as the two above want it.
template <typename R, typename... Args>
const void* function_address(R (*function)(Args...)) {
  return reinterpret_cast<const void*>(function);
}

}  // namespace muster
