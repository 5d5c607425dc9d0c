// Workers that live but cannot work together: a cut link between two of them, say.
//
// A worker reports a suspect only if it could not connect to that peer, or if the peer did not
// answer (Heartbeat::suspect); never a peer that closed its connection, as all members do when a
// group fails. So one report is enough: of two that cannot reach each other, the first to notice
// closes the group, and the other sees only that.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "muster/roster/types.h"

namespace muster::roster {

struct State;

// Two that could not work together, and in how many rosters since the last commit.
struct Conflict {
  std::string a, b;  // ids, a < b
  int32_t rosters = 0;
  RosterNumber last = 0;  // of them
};

// Counts that two could not work together in this roster, once.
void count_conflict(const std::string& one, const std::string& other, RosterNumber roster,
                    std::vector<Conflict>& conflicts);

// The conflicts as they are once the failure of the present roster is counted.
std::vector<Conflict> conflicts_after(const State& state);

// Of those who failed with each other in at least `tries` rosters: the one with most conflicts,
// then the higher id; null if there is none. Deterministic, so that it is always the same one.
const Member* one_to_quarantine(std::span<const Conflict> conflicts,
                                std::span<const Member> members, int32_t tries);

}  // namespace muster::roster
