// What a worker does with the rosters it gets: pure rules, used by train and by the simulation.
//
// A group is bound to one roster and is never repaired. There are two ways out of it:
// - At once, when it is broken: a member is gone, or its number is invalid. Whoever learns it
// aborts the
//   group, which wakes everybody who waits in it.
// - At a step boundary, when the change was planned (somebody joins, goes, or lanes move). The
// commit
//   message has a byte for it: each member that knows of a newer roster puts a 1 there, and the
//   commit takes the maximum. So all learn in the same commit that they leave after it; nothing is
//   redone. Who did not know that roster yet waits for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "muster/roster/types.h"

namespace muster::roster {

// Why a worker in the group of `group` must leave it at once, now that `newest` is known; nothing
// if it need not.
std::optional<std::string> why_abort(const Roster& group, const Roster& newest);

// The byte for the commit message of a member of the group of `group`.
uint8_t commit_byte(const Roster& group, const Roster& newest);

enum class AfterCommit : uint8_t {
  kGoOn,    // next step, same group
  kSwitch,  // leave the group now: the newest roster is at hand (it may not contain this worker)
  kWait,    // leave the group now, then wait for a newer roster than the group's
};
// `agreed`: the maximum of all members' bytes, from the commit message.
AfterCommit after_commit(uint8_t agreed, const Roster& group, const Roster& newest);

// What a worker without a group does.
enum class Next : uint8_t {
  kForm,     // exchange addresses for the newest roster and form its group
  kWait,     // nothing to do before another roster comes
  kGo,       // it asked to leave, and the newest roster is without it
  kRemoved,  // it is not in the newest roster and did not ask to leave: it must rejoin
};
// `past`: the number of the last roster whose group it has left or could not form, or 0. A group is
// never formed twice.
Next next_move(const WorkerKey& self, bool leaving, const Roster& newest, RosterNumber past);

}  // namespace muster::roster
