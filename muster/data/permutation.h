// A keyed permutation of [0, n), computed on the fly: what stands at a position, and where a value
// stands, without a table.
//
// How: the position is written as (high, low) with low in [0, b), b a power of two near sqrt(n),
// and high in [0, a), a = ceil(n / b). A Feistel network adds a keyed random function of one half
// to the other half, in turns; each such round can be undone, so the whole is a permutation of
// [0, a * b). That is at most b - 1 more than n: a result that is not below n is put through again
// ("cycle walking") until it is, which keeps the map a permutation, now of [0, n).
//
// Part of the format of a run: a change here changes what every seed trains on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "muster/base/random.h"

namespace muster::data {

// A plain value; safe for concurrent use.
class Permutation {
 public:
  static constexpr uint64_t kMaxSize = uint64_t{1} << 40;

  // n from 1 to kMaxSize. Round keys are blocks of the stream, from its first on: as much work as
  // computing two or three values.
  Permutation(uint64_t n, const RandomStream& keys);
  // Round keys are hashes of `key`: a tenth of that work, for permutations that serve a few values.
  Permutation(uint64_t n, uint64_t key);

  uint64_t size() const { return n_; }
  // The value at this position; position < n.
  uint64_t operator()(uint64_t position) const;
  // The position of this value: the inverse of the above; value < n.
  uint64_t position_of(uint64_t value) const;

 private:
  static constexpr int kMaxRounds = 16;
  explicit Permutation(uint64_t n);
  uint64_t forward(uint64_t x) const;
  uint64_t backward(uint64_t x) const;

  uint64_t n_;
  uint64_t high_size_;  // a
  uint64_t low_mask_;   // b - 1
  int low_bits_;        // b = 2^low_bits
  int rounds_;
  std::array<uint64_t, size_t{2} * kMaxRounds> keys_;  // the first 2 * rounds_ are set
};

}  // namespace muster::data
