// The coordinator's decision on membership, as a pure function of (now, state, options).
//
// decide() is called after every message and when the time it asked for has come. It returns what
// to do and why, and changes nothing. Registrar (registrar.h) keeps the state and carries decisions
// out; the tests below it and the simulation call the same code.
//
// Promises:
// - The first decision after a worker is lost (connection closed, exit reported by its launcher,
//   lease expired) removes it. The members that stay then get a roster without it at once.
// - Joins, leaves and moves of lanes wait until all members are in the group of the present roster,
//   so that planned changes cannot pile up on each other.
// - A group that failed although all its members are alive is tried again under a new number; after
//   Options::tries, one of the members that cannot communicate is removed and quarantined.
// - A member that hangs is removed; when it counts as hung is said in hang_rules.h.
// - Members that stay keep their order, and so mostly their ranks.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/clock.h"
#include "muster/roster/conflicts.h"
#include "muster/roster/types.h"

namespace muster::roster {

// A worker as the coordinator knows it: it has joined and was not removed since.
struct WorkerState {
  JoinRequest join;
  Moment joined;
  Moment heard;                        // its last sign of life
  std::optional<Moment> disconnected;  // its connection broke, and it did not come back yet
  std::string exited;                  // what its launcher said about its end; empty: nothing
  Heartbeat beat;                      // the last one
  // When beat.progress, beat.activity or beat.group last changed, and its last heartbeat: from the
  // one to the other it is known to have stood still.
  Moment progressed;
  Moment still_until;
  RosterNumber offered = 0;  // the newest roster for which it gave addresses: it has left others
  RosterNumber awaits_addresses = 0;  // that roster, while members of a group have not given theirs
  std::optional<Moment> addressed;    // when it last got the addresses of a group of that roster
  std::optional<Moment> asked_to_leave;  // when it first said that it wants to
  std::optional<Moment> released;        // when it was told that no member needs it any more
  std::optional<Moment> broke;           // when it first said that its group of beat.broken failed
  double lane_seconds = 0;               // smoothed

  const WorkerKey& key() const { return join.key; }
};

struct Quarantine {
  Moment until;
  int32_t times = 0;
};

struct State {
  Moment started;              // when this coordinator began
  RosterNumber highest = 0;    // number issued or heard of
  Roster current;              // number 0: none yet
  std::deque<Roster> history;  // the last kHistory rosters, newest last: `current` is the last
  Moment issued;               // when `current` was, or was learnt
  bool lost = false;           // `current` was issued because a member was lost
  std::optional<Moment> first_join;
  bool learning = false;       // another coordinator was there before: still listening
  std::optional<Ended> ended;  // the job has; nothing changes any more
  std::map<std::string, WorkerState> workers;  // by id: a slot has one worker at most
  std::vector<Conflict> conflicts;
  int32_t failures = 0;  // rosters in a row whose group failed, without a commit
  // Since when members wait for others to form the group, without a commit since. Further rosters
  // do not change it: a member that hangs is removed by this clock, however often its peers retry.
  std::optional<Moment> awaited;
  std::map<std::string, Quarantine> quarantines;
  Moment rebalanced;              // when lanes were last looked at for speed
  std::optional<Moment> resumed;  // when this coordinator last continued after a suspension

  // Null: it is not here, or another incarnation of it is.
  const WorkerState* find(const WorkerKey& key) const {
    const auto found = workers.find(key.id);
    return found != workers.end() && found->second.key() == key ? &found->second : nullptr;
  }
};

struct Removal {
  WorkerKey who;
  std::string reason;
  RemovalCause cause = RemovalCause::kExited;
};

struct Decision {
  std::vector<Removal> out;         // to be told, and forgotten
  std::optional<Roster> roster;     // to be issued
  bool retry = false;               // `roster` is another try after a failure without a death
  bool lost = false;                // `roster` is without a member that was lost
  std::optional<Moment> stalled;    // with retry: no member makes progress, since then
  std::vector<Conflict> conflicts;  // with retry: as they are now, this failure included
  bool learned = false;             // listening is over
  bool rebalanced = false;          // lanes were looked at
  std::string reason;               // why; also why not
  // Time alone may change the decision from this moment on, not before.
  std::optional<Moment> look_again;
};

Decision decide(Moment now, const State& state, const Options& options);

// How many rosters back a worker gets a difference, and the group of a member is known.
inline constexpr size_t kHistory = 8;
// Makes this the present roster.
void take_up(Roster roster, Moment now, State& state);

// Carries a decision into the state. What is said to whom is the caller's business.
void carry_out(Moment now, const Decision& decision, State& state, const Options& options);

}  // namespace muster::roster
