// How the state gets from the members of a group that have it to those that do not. All of them
// take part; who has it and who receives it was agreed on (muster/roster/agree.h).
//
// Few receivers (not more than there are sources) take a stripe from each source that can send to
// them, in rounds in which each member serves or is served by one other: nobody waits for a third.
// Many receivers get all of it by broadcasts, whose roots take turns, because then those who have a
// part pass it on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "muster/base/result.h"
#include "muster/comm/group.h"
#include "muster/roster/agree.h"
#include "muster/train/membership/vitals.h"

namespace muster::train {

// One stripe of the state, from one member to another.
struct Handover {
  int source = 0;  // ranks
  int receiver = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// A receiver and those that can send to it, at least one.
struct Receiver {
  int rank = 0;
  std::vector<int> sources;
};

// In each round a rank occurs at most once; after all rounds each receiver has every byte.
std::vector<std::vector<Handover>> transfer_rounds(uint64_t bytes,
                                                   std::span<const Receiver> receivers);

// Collective. `state` is read on those that have it and written on those that receive it, in parts,
// each of which is progress: all of it may take longer than workers.hang_timeout. Returns how many
// bytes this member received.
Result<uint64_t> transfer_state(std::span<std::byte> state, comm::Group& group,
                                const roster::Agreement& agreement, const Vitals& vitals,
                                const comm::OpOptions& options);

}  // namespace muster::train
