// Weights that each replica has of its own (gossip, streaming, sparta), in the state of the job:
// how far they are from the common ones, a state of the arena for each replica.
#pragma once

#include <cstddef>
#include <vector>

#include "muster/train/state/arena.h"

namespace muster::train {

// The weights of the replica whose distance is state `kept`.
void load_own(Arena& arena, size_t kept, std::vector<float>& weights);

// Makes the common weights the mean of those of all replicas, whose distances begin with state
// `first`, in one block. Their own stay what they are. Safe for concurrent use on different blocks.
void take_mean_of_own(Arena& arena, size_t first, size_t replicas, size_t block);

}  // namespace muster::train
