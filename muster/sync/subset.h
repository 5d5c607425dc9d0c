// Which elements of a block are sent, if they are not all.
//
// Pure: safe for concurrent use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "muster/base/random.h"

namespace muster::sync {

// How many of `size` elements, if of exact::kBlockSize it is `keep`: rounded, at least one.
size_t share_of(size_t size, int64_t keep);

// Fills `places` with different numbers below `size`, ascending; each such set is as probable as
// any other. At most `size` places, size at most exact::kBlockSize.
void draw_subset(RandomStream random, size_t size, std::span<uint16_t> places);

}  // namespace muster::sync
