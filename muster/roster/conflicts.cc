#include "muster/roster/conflicts.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "muster/roster/decide.h"

namespace muster::roster {

void count_conflict(const std::string& one, const std::string& other, RosterNumber roster,
                    std::vector<Conflict>& conflicts) {
  const auto& [a, b] = std::minmax(one, other);
  auto known = std::ranges::find_if(
      conflicts, [&](const Conflict& conflict) { return conflict.a == a && conflict.b == b; });
  if (known == conflicts.end()) known = conflicts.insert(known, {a, b, 0, 0});
  if (known->last == roster) return;
  ++known->rosters;
  known->last = roster;
}

std::vector<Conflict> conflicts_after(const State& state) {
  const RosterNumber number = state.current.number;
  const auto member = [&](const std::string& id) -> const WorkerState* {
    const auto found = state.workers.find(id);
    if (found == state.workers.end() || !state.current.has(found->second.key())) return nullptr;
    return &found->second;
  };
  std::set<std::pair<std::string, std::string>> pairs;
  for (const Member& one : state.current.members) {
    const std::string& id = one.key.id;
    const WorkerState* reporter = member(id);
    if (!reporter || reporter->beat.broken != number) continue;
    const std::string& suspect = reporter->beat.suspect;
    const WorkerState* other = suspect.empty() || suspect == id ? nullptr : member(suspect);
    if (other) pairs.insert(std::minmax(id, suspect));
  }
  std::vector<Conflict> result = state.conflicts;
  for (const auto& [a, b] : pairs) count_conflict(a, b, number, result);
  return result;
}

const Member* one_to_quarantine(std::span<const Conflict> conflicts,
                                std::span<const Member> members, int32_t tries) {
  std::map<std::string, int> degree;
  for (const Conflict& conflict : conflicts) {
    if (conflict.rosters < tries) continue;
    ++degree[conflict.a];
    ++degree[conflict.b];
  }
  const Member* result = nullptr;
  for (const Member& member : members) {
    const auto found = degree.find(member.key.id);
    if (found == degree.end()) continue;
    if (!result || std::pair(found->second, member.key.id) >
                       std::pair(degree[result->key.id], result->key.id)) {
      result = &member;
    }
  }
  return result;
}

}  // namespace muster::roster
