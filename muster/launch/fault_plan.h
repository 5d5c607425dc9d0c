// Which faults `muster verify` brings upon a job, and when: made from words and a seed, pure, so
// that a run that showed something can be repeated.
//
//   kill:20                 SIGKILL to one worker
//   kill@before-commit:5    one kills itself at that point (base/fault_point.h has the list)
//   pair:3                  SIGKILL to two at once
//   most:2                  SIGKILL to all but one at once
//   suspend:5               SIGSTOP for longer than its lease, then SIGCONT
//   hang:2                  the threads that compute stand still, its heartbeats continue
//   leave:5                 SIGTERM: it goes at a step boundary
//   join:5                  another worker comes
//   cut:2                   two workers cannot reach each other, but everybody else
//   slow-disk:2             one worker's disk is slow for longer than workers.hang_timeout
//   flip:2                  a bit of one worker's state changes
//   lie:2                   what one worker computes is wrong from then on
//   pause:2                 SIGSTOP to the coordinator for longer than the lease, then SIGCONT
//   restart:2               SIGKILL to the coordinator; another one starts at the same address
//   kill-server:3           SIGKILL to a parameter server (docs/servers.md)
//   kill-server@ack:3       one kills itself at that point, another of base/fault_point.h
//   suspend-server:3        SIGSTOP for longer than its lease, then SIGCONT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/fault_point.h"
#include "muster/base/result.h"

namespace muster::launch {

enum class FaultKind : uint8_t {
  kKill,
  kAimed,
  kPair,
  kMost,
  kSuspend,
  kHang,
  kLeave,
  kJoin,
  kCut,
  kSlowDisk,
  kFlip,
  kLie,
  kPause,
  kRestart,
  kKillServer,
  kAimedServer,
  kSuspendServer,
};

struct Fault {
  FaultKind kind = FaultKind::kKill;
  FaultPoint point = FaultPoint::kNone;  // with kAimed and kAimedServer
  uint64_t step = 0;                     // not before the job has come this far
  uint64_t draw = 0;                     // decides who it hits, and when within the step
  std::string name() const;              // "kill", "kill@forming", ...
};

// "kill:20,suspend:5". An error says what is wrong and what there is.
Result<std::vector<Fault>> parse_faults(std::string_view words);

bool has_kind(const std::vector<Fault>& faults, FaultKind kind);
bool has_point(const std::vector<Fault>& faults, FaultPoint point);

// Gives each fault a step of a job of `steps` steps, at random but not in its first twentieth nor
// in its last three (some have to wait until they are possible), and puts them in that order.
// Faults of the coordinator come in the first half: the job continues while it is away, and no
// other fault falls meanwhile.
void schedule_faults(std::vector<Fault>& faults, uint64_t seed, uint64_t steps);

}  // namespace muster::launch
