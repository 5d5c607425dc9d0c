// The largest elements of a block, by magnitude.
//
// Which ones is defined to the bit: those of larger magnitude first, of equal ones that at the
// lower place. So every worker and every instruction set chooses the same.
//
// How: the block is read as rows of about eight times `keep` columns, or one time if that leaves
// fewer than four rows. A bound that `keep` of the
// columns' maxima reach is a bound that at least `keep` elements reach; only columns that reach it
// are looked at one by one.
//
// Pure: safe for concurrent use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "muster/base/isa.h"

namespace muster::sync {

// Writes the places of the places.size() largest values, ascending. At most as many places as
// values, at most exact::kBlockSize values, all finite.
void find_largest(std::span<const float> values, std::span<uint16_t> places, Isa isa = best_isa());

}  // namespace muster::sync
