#include "muster/roster/follow.h"

#include <algorithm>

namespace muster::roster {

std::optional<std::string> why_abort(const Roster& group, const Roster& newest) {
  if (newest.number <= group.number) return std::nullopt;
  if (group.number <= newest.invalid_through) {
    return fmt::format("roster {} is invalid: {}", sequence_of(group.number), newest.reason);
  }
  // Rosters keep the order of their members, so the next one is most often where the last one
  // was found: with thousands of members, looking for each would take tens of milliseconds.
  auto next = newest.members.begin();
  for (const Member& member : group.members) {
    if (next != newest.members.end() && next->key == member.key) {
      ++next;
      continue;
    }
    if (newest.has(member.key)) continue;
    if (std::ranges::find(newest.leaving, member.key) != newest.leaving.end()) continue;
    return fmt::format("worker {} was removed: {}", member.key.id, newest.reason);
  }
  return std::nullopt;
}

uint8_t commit_byte(const Roster& group, const Roster& newest) {
  return newest.number > group.number ? 1 : 0;
}

AfterCommit after_commit(uint8_t agreed, const Roster& group, const Roster& newest) {
  if (agreed == 0) return AfterCommit::kGoOn;
  return newest.number > group.number ? AfterCommit::kSwitch : AfterCommit::kWait;
}

Next next_move(const WorkerKey& self, bool leaving, const Roster& newest, RosterNumber past) {
  if (newest.number == 0) return Next::kWait;
  if (!newest.has(self)) {
    if (leaving) return Next::kGo;
    // One that asked in and is not in yet has no roster with itself behind it; it is told so by the
    // coordinator, not by a roster. Here the worker was in.
    return Next::kRemoved;
  }
  if (newest.waiting || newest.number <= past) return Next::kWait;
  return Next::kForm;
}

}  // namespace muster::roster
