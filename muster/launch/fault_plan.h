// Which faults `muster verify` brings upon a job, and when: made from words and a seed, pure, so
// that a run that showed something can be repeated.
//
//   kill:20                 SIGKILL to one worker
//   kill@before-commit:5    one kills itself at that point (base/fault_point.h has the list)
//   pair:3                  SIGKILL to two at once
//   most:2                  SIGKILL to all but one at once
//   stop:5                  SIGSTOP for longer than its lease, then SIGCONT
//   leave:5                 SIGTERM: it goes at a step boundary
//   join:5                  another worker comes
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/fault_point.h"
#include "muster/base/result.h"

namespace muster::launch {

enum class FaultKind : uint8_t { kKill, kAimed, kPair, kMost, kStop, kLeave, kJoin };

struct Fault {
  FaultKind kind = FaultKind::kKill;
  FaultPoint point = FaultPoint::kNone;  // with kAimed
  uint64_t step = 0;                     // not before the job has come this far
  uint64_t draw = 0;                     // decides who it hits, and when within the step
  std::string name() const;              // "kill", "kill@forming", ...
};

// "kill:20,stop:5". An error says what is wrong and what there is.
Result<std::vector<Fault>> parse_faults(std::string_view words);

// Gives each fault a step of a job of `steps` steps, at random but not in its first twentieth nor
// in its last three (some have to wait until they are possible), and puts them in that order.
void schedule_faults(std::vector<Fault>& faults, uint64_t seed, uint64_t steps);

}  // namespace muster::launch
