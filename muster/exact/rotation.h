// A random rotation of a block of gradients, before it is rounded to few bits.
//
// A block has one scale (fixed_point.h), made for its largest element. With 4 or 2 bits, one
// element much larger than the others leaves these without any bits. A rotation spreads each
// element over many: afterwards all are about equally large, and the largest is only a few times
// the deviation. It is linear, so the sum of the rotated gradients of all lanes is the rotated sum,
// which is rotated back after it has been converted to float.
//
// The rotation: signs are flipped at random, then a Walsh-Hadamard transform is applied to each of
// 16 interleaved sequences (elements c, c + 16, c + 32, ...) of up to 256 elements each. Sixteen
// sequences side by side are what vector instructions want, and 256 elements are mixed well enough.
// Of a shorter block the longest such piece is taken, then of the rest; fewer than 32 elements are
// left as they are. All steps are additions, subtractions and multiplications with powers of two in
// a fixed order: the same bits on every machine.
//
// Suresh, Yu, Kumar, McMahan: Distributed Mean Estimation with Limited Communication, 2017.
//
// Pure functions: safe for concurrent use.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "muster/base/isa.h"

namespace muster::exact {

// One rotation for each (seed, step), the same for all lanes.
struct Rotation {
  Rotation(uint64_t seed, int64_t step);
  std::array<uint32_t, 2> key;
};

// In place. `first`: the place of block[0] in the buffer of all elements.
void rotate(std::span<float> block, const Rotation& rotation, uint64_t first, Isa isa = best_isa());
// The inverse, up to float rounding.
void rotate_back(std::span<float> block, const Rotation& rotation, uint64_t first,
                 Isa isa = best_isa());

}  // namespace muster::exact
