#include "muster/roster/conflicts.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "muster/roster/decide.h"

namespace muster::roster {

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
  for (const auto& [a, b] : pairs) {
    const auto known = std::ranges::find_if(
        result, [&](const Conflict& conflict) { return conflict.a == a && conflict.b == b; });
    if (known == result.end()) {
      result.push_back({a, b, 1});
    } else {
      ++known->rosters;
    }
  }
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
