// When a member counts as hung: the coordinator's rules, as pure functions of (now, state,
// options). decide.h asks them.
//
// What the coordinator can know. It sees a worker only through its heartbeats, one every
// Options::heartbeat. Each says what the worker is at, and for how long nothing of that has changed
// (Heartbeat::still). So of each worker one interval is certain: it stood still from
// WorkerState::progressed to WorkerState::still_until. What it has done since its last heartbeat is
// not known, so the rules compare these intervals and never the present time: a worker was still
// for T if its own interval is that long, and several were still together for T if their intervals
// have T in common. A worker that makes progress is therefore never taken for one that hangs,
// whatever the proportion of timeout and heartbeat. The price is that a hang is noticed one
// heartbeat later.
//
// The rules, with T = Options::hang_timeout (0: none of them applies):
//
// 1. A member that is at its own work, still for T, and awaited by a peer for T, hangs and is
//    removed. Awaited: a member of its group waits in a collective, or the members of the present
//    roster wait for it to come to their group. If all are at their own work, nobody is removed: it
//    may be the storage that all of them read from.
// 2. A member without peers is awaited by nobody, but the job stands still: it is removed after 3
// T.
// 3. All members wait for each other, and were still together for T / 2: impossible among healthy
//    ones, so one hangs inside a collective, or what it sent was lost. Which one cannot be told
//    from heartbeats, so the coordinator issues another roster. A member that hangs does not come
//    to its group, and rule 1 removes it T after the standstill began (State::awaited).
// 4. A worker that was asked to leave, is no member and is in no group has only to say that it has
//    left and, once it was released, to exit. One that is still for T hangs and is removed, or it
//    would keep its launcher's slot for ever.
//
// From the moment a member is awaited to its removal: at least T, at most T, a heartbeat and a
// quarter of one (the rules are looked at that often).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "muster/base/clock.h"
#include "muster/roster/decide.h"
#include "muster/roster/types.h"

namespace muster::roster {

// Who takes part, counted once for a decision: thousands of workers are no problem. Its pointers
// are into the State it was taken from.
struct Census {
  explicit Census(const State& state);

  bool is_member(const WorkerState& worker) const;
  bool includes(const WorkerState& worker) const;  // among those who take part

  std::vector<const WorkerState*> by_rank;     // members of the present roster; null: not known
  std::vector<const WorkerState*> members;     // those that are known; sorted
  std::vector<const WorkerState*> takes_part;  // and those who leave and have not left; sorted
  struct Group {
    int size = 0;                         // of those who take part
    std::optional<Moment> waiting_since;  // the first of its members that waits for peers
  };
  std::map<RosterNumber, Group> groups;  // that those who take part are in
};

struct HangVerdict {
  std::optional<std::string> hangs;  // why it is removed; nothing: it stays
  std::optional<Moment> look_again;  // time alone may change the verdict from then on
};
// Rules 1 and 2.
HangVerdict judge_member(Moment now, const WorkerState& worker, const Census& census,
                         const State& state, const Options& options);

struct StandstillVerdict {
  std::optional<Moment> since;  // the members stand still since then; nothing: they do not
  std::optional<Moment> look_again;
};
// Rule 3. No member may be lost.
StandstillVerdict judge_standstill(Moment now, const Census& census, const State& state,
                                   const Options& options);

}  // namespace muster::roster
