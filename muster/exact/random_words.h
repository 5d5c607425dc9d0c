// Random numbers for loops over all elements: one 32-bit word for each place in a buffer.
//
// A hash of key and place: multiplications and shifts of 32 bits, for which every instruction set
// has vectors (ten rounds of Philox would cost more than all the rest). The keys are made by a good
// 64-bit hash (base/random.h); what is asked of this one is that neighbours, lanes and steps do not
// follow each other, which tests check.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "muster/base/hash.h"
#include "muster/base/isa.h"

namespace muster::exact {

struct RandomWords {
  // `first`: the place of element 0.
  RandomWords(std::array<uint32_t, 2> key, uint64_t first) : first(static_cast<uint32_t>(first)) {
    // The hash of an element takes 32 bits of its place. A buffer that has more gets further keys.
    if (const uint64_t high = first >> 32; high != 0) {
      const std::array<uint64_t, 2> name = {uint64_t{key[1]} << 32 | key[0], high};
      const uint64_t hash = hash64(name.data(), sizeof(name));
      key = {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)};
    }
    key0 = key[0];
    key1 = key[1];
  }

  MUSTER_ALWAYS_INLINE uint32_t operator()(size_t i) const {
    uint32_t x = (first + static_cast<uint32_t>(i)) * 0x9E3779B1u + key0;
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x = (x ^ x >> 13) + key1;
    x *= 0xC2B2AE35u;
    return x ^ x >> 16;
  }

  uint32_t first;
  uint32_t key0 = 0;
  uint32_t key1 = 0;
};

}  // namespace muster::exact
