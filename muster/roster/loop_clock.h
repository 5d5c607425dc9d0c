// The time as a loop has lived it: it stands still while the loop did not run.
//
// A coordinator that is suspended for 3 s (SIGSTOP, Ctrl-Z, a stalled virtual machine) has not
// heard from any worker for 3 s when it continues, and by the real time every lease has expired.
// But it is the coordinator that was away. So its leases and timeouts count only the time during
// which it could have heard anything: whatever a turn of its loop is late is taken out of the time.
//
// Not safe for concurrent use.
#pragma once

#include <optional>

#include "muster/base/clock.h"

namespace muster::roster {

class LoopClock {
 public:
  // The loop asks for the time at least every `longest_wait`, as long as it runs.
  explicit LoopClock(Duration longest_wait) : longest_wait_(longest_wait) {}

  // `real` must not go backwards.
  Moment now(Moment real) {
    if (last_) {
      const Duration gap = real - *last_;
      // Twice: a loaded machine is late by a little all the time, and that must not add up.
      if (gap > 2 * longest_wait_) lost_ += gap - longest_wait_;
    }
    last_ = real;
    return real - lost_;
  }
  // When the loop's own time will be `moment`, if it is not late again.
  Moment real(Moment moment) const { return moment + lost_; }
  Duration longest_wait() const { return longest_wait_; }
  // How much time was taken out so far.
  Duration lost() const { return lost_; }

 private:
  Duration longest_wait_;
  std::optional<Moment> last_;
  Duration lost_{0};
};

}  // namespace muster::roster
