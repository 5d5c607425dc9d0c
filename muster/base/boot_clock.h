// A clock that goes on while the machine sleeps, which steady_clock on Linux does not: for leases,
// which another machine counts too.
#pragma once

#include <ctime>

#include "muster/base/clock.h"

namespace muster {

class BootClock final : public Clock {
 public:
  Moment now() const override {
    timespec time{};
    clock_gettime(CLOCK_BOOTTIME, &time);
    return Moment{std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec)};
  }
  WallTime wall() const override { return std::chrono::system_clock::now(); }
};

}  // namespace muster
