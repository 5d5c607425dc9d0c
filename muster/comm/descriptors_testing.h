// For tests of a process that has no free descriptor.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "muster/base/check.h"
#include "muster/comm/socket.h"

namespace muster::comm {

// clang's check of virtual tables (-fsanitize=vptr) opens a pipe to read memory safely; if it
// cannot, it takes every object for an invalid one.
#if defined(__has_feature)
#if __has_feature(undefined_behavior_sanitizer)
inline constexpr bool kSanitizerNeedsDescriptors = true;
#else
inline constexpr bool kSanitizerNeedsDescriptors = false;
#endif
#else
inline constexpr bool kSanitizerNeedsDescriptors = false;
#endif

// Takes all descriptors until the result is cleared. The limit stays at 64: call it in a process
// of its own.
inline std::vector<Fd> take_all_descriptors() {
  const rlimit limit{64, 64};
  MUSTER_CHECK(::setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
  std::vector<Fd> taken;
  while (true) {
    Fd fd(::dup(1));
    if (!fd) return taken;
    taken.push_back(std::move(fd));
  }
}

}  // namespace muster::comm
