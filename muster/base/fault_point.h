// Places where a test can make a process die, a disk that a test can make slow, and memory and a
// processor that a test can make faulty.
//
// A crash is most telling at moments that are hard to hit from outside: between the sum and the
// commit, in the middle of a checkpoint's files, after a group's addresses are known and before it
// is connected. `muster verify` aims there: it starts workers and parameter servers with
// MUSTER_FAULTS=1 and sends one of them the signal SIGRTMIN + point; the process kills itself
// (SIGKILL, so that nothing is cleaned up) when it next passes that point. Without the variable the
// signals are not handled and a point costs the reading of a flag.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace muster {

enum class FaultPoint : uint8_t {
  kNone = 0,
  kBeforeCommit,  // the sums are complete, the commit has not begun
  kAfterCommit,   // the commit has succeeded here, and is not applied
  kCheckpoint,    // some files of a checkpoint are written, not all
  kTransfer,      // part of the state was sent to a joiner, or received
  kForming,       // the addresses of a group are known, it is not connected
  kRecovery,      // the members of a new group have told each other where they are
  kEvaluation,    // its part of an evaluation is computed, not shared
  kRound,         // of a periodic strategy: its replicas' round is computed, not exchanged; of an
                  // asynchronous one: a task's gradients are pushed, and have no place yet
  // Of parameter servers.
  kAck,      // a primary: its backup has confirmed a push, the client is not answered
  kConfirm,  // a backup: a push is applied, and not confirmed
  kCopy,     // a server that sends copies to one that joins: some are sent, not all
  kJoin,     // a server that joins: it has some of its copies, not all
  kSave,     // one of whose shards a checkpoint has read, and not all
};
inline constexpr int kFaultPoints = 14;  // with kNone
// Whether parameter servers pass it, and no workers.
constexpr bool is_server_point(FaultPoint point) { return point >= FaultPoint::kAck; }

std::string_view fault_point_name(FaultPoint point);  // "before-commit", ...
std::optional<FaultPoint> find_fault_point(std::string_view name);
// The signal that aims at it; kNone: at nothing any more.
int fault_signal(FaultPoint point);

// Makes the disk of that process slow: each of the next writes to files that are created (not to
// those that grow, like a log) waits first, for `pause` milliseconds, until they have waited for
// `total` milliseconds. False: there is no such process.
bool slow_disk(int process, int pause, int total);

// Makes that process flip a bit of the training state at the beginning of its next step: one of the
// upper 20 of a 32-bit word, chosen by `draw`. False: there is no such process.
bool flip_bit(int process, uint32_t draw);
// From now on, what that process computes for a lane is wrong by the smallest possible amount.
bool make_lie(int process);

// If the environment has MUSTER_FAULTS=1. Call it before there are other threads.
void arm_fault_points();

namespace internal {
extern std::atomic<uint8_t> aimed_fault;
void die_at_fault_point(FaultPoint point);
extern std::atomic<int32_t> slow_disk_left;  // milliseconds
void wait_for_slow_disk();
extern std::atomic<int64_t> bit_to_flip;  // -1: none
extern std::atomic<bool> lying;
void flip_bit_of(std::span<std::byte> state);
}  // namespace internal

// Whether this process is to die at that point: for points at which it takes some work to know
// whether they are reached.
inline bool is_aimed_at(FaultPoint point) {
  return internal::aimed_fault.load(std::memory_order_relaxed) == static_cast<uint8_t>(point);
}

inline void fault_point(FaultPoint point) {
  if (is_aimed_at(point)) internal::die_at_fault_point(point);
}

// Before each write to a file that was created.
inline void slow_disk_point() {
  if (internal::slow_disk_left.load(std::memory_order_relaxed) > 0) internal::wait_for_slow_disk();
}

// At the beginning of a step, with all of the training state.
inline void flip_point(std::span<std::byte> state) {
  if (internal::bit_to_flip.load(std::memory_order_relaxed) >= 0) internal::flip_bit_of(state);
}

// Whether the results of lanes are to be wrong.
inline bool lies() { return internal::lying.load(std::memory_order_relaxed); }

}  // namespace muster
