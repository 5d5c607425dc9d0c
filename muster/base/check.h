// Programming errors: conditions that cannot be false unless this program has a bug. They print
// where and what, and abort; nobody catches them. Anything a user, a file or a machine can cause is
// a Result (result.h) instead.
#pragma once

#include <string_view>

namespace muster {

[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               std::string_view message);

}  // namespace muster

#define MUSTER_CHECK(condition, message)                               \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::muster::check_failed(#condition, __FILE__, __LINE__, message); \
  } while (false)
