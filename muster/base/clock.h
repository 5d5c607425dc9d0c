// Time, behind an interface, so that decisions that depend on it can be tested with a clock that a
// test moves by hand.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

namespace muster {

using Duration = std::chrono::nanoseconds;
// A moment on this process's monotonic clock: never jumps, means nothing to another machine.
using Moment = std::chrono::time_point<std::chrono::steady_clock, Duration>;
// Wall-clock time: for people and files, never for deciding how long something took.
using WallTime = std::chrono::time_point<std::chrono::system_clock, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Moment now() const = 0;
  virtual WallTime wall() const = 0;
};

class SystemClock final : public Clock {
 public:
  Moment now() const override { return std::chrono::steady_clock::now(); }
  WallTime wall() const override { return std::chrono::system_clock::now(); }
};

// Stands still until told. Safe for concurrent use.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(WallTime wall = WallTime{}) : wall_start_(wall) {}
  Moment now() const override { return Moment{Duration{elapsed_.load()}}; }
  WallTime wall() const override { return wall_start_ + Duration{elapsed_.load()}; }
  void advance(Duration by) { elapsed_ += by.count(); }

 private:
  WallTime wall_start_;
  std::atomic<int64_t> elapsed_{0};
};

inline double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

// "2026-03-01T12:30:05Z", and with `for_file_name` "20260301-123005".
std::string utc_timestamp(WallTime t, bool for_file_name = false);

}  // namespace muster
