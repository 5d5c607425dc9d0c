// The other way of adding gradients: plain float sums, for `reduction: native`. Fast and familiar,
// and the bits depend on who comes first. It stands beside fixed_point.h so that the two can be
// compared loop for loop; like it, it reports the exponent byte of the block, which shows what is
// not finite.
#pragma once

#include <cstdint>
#include <span>

#include "muster/base/isa.h"

namespace muster::exact {

// sum = g, and sum += g. Both return the exponent byte of g (fixed_point.h).
uint8_t store_floats(std::span<const float> g, float* sum, Isa isa = best_isa());
uint8_t add_floats(std::span<const float> g, float* sum, Isa isa = best_isa());

}  // namespace muster::exact
