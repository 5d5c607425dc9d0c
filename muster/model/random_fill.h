// Arrays of random numbers and dropout masks: pure functions of a stream and the element's index,
// in the order of random_words.h. Single float operations only, so that every instruction set gives
// the same bits. No torch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "muster/base/random.h"

namespace muster::model {

// Uniform in [low, high).
void fill_uniform(const RandomStream& stream, float low, float high, std::span<float> out);

// Normal: in each group of 64, words e and e + 32 give the numbers e and e + 32 (Box-Muller in
// double).
void fill_normal(const RandomStream& stream, double mean, double deviation, std::span<float> out);

// out[e] = in[e] / (1 - p) where element e is kept, in[e] * 0 where it is dropped; it is kept with
// probability 1 - p. in and out have the same size and may be the same memory. 0 <= p < 1.
void apply_dropout(const RandomStream& stream, double p, std::span<const float> in,
                   std::span<float> out);
// The same mask on bfloat16, given by its bits; multiplied in float and rounded to nearest even.
void apply_dropout(const RandomStream& stream, double p, std::span<const uint16_t> in,
                   std::span<uint16_t> out);

}  // namespace muster::model
