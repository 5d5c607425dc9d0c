// The words of a random stream (base/random.h) in bulk and in vector registers.
//
// A stream's words come in groups of 64, made from its blocks 16 g to 16 g + 15. Element e of group
// g is word 2 (e / 32) + e % 2 of block 16 g + (e % 32) / 2. This order is what falls out of the
// registers: Philox multiplies 32-bit numbers held in 64-bit lanes, and two numbers of 32 bits fit
// back into one lane. It is part of the format of a run (dropout masks and first weights follow
// it): never change it. Integers only, so every instruction set gives the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "muster/base/isa.h"

namespace muster::model {

inline constexpr size_t kRandomGroup = 64;

// Writes groups [first, first + groups) of the stream with this key; isa is one of usable_isas().
void random_words(Isa isa, std::array<uint32_t, 2> key, uint64_t first, size_t groups,
                  uint32_t* out);

}  // namespace muster::model
