// The order of samples: a keyed permutation of [0, n) for each pass, computed on the fly.
//
// A shuffled list would have to be made, kept and sent around: 8 TB for 2^40 samples. Instead the
// index that stands at a position is computed from (seed, pass, position) alone, in tens of
// nanoseconds (permutation.h), so that any worker can compute any lane's batch of any step.
//
// This is the order `full`: every sample may come at any position. Data that is read by blocks has
// another one, blocks/strata.h.
//
// Part of the format of a run: a change here changes what every seed trains on.
#pragma once

#include <cstdint>

#include "muster/base/check.h"
#include "muster/base/random.h"
#include "muster/data/permutation.h"

namespace muster::data {

// A plain value; safe for concurrent use.
class Order {
 public:
  static constexpr uint64_t kMaxSize = Permutation::kMaxSize;
  // One pass over the data. Cheap to make (the round keys, about as much work as two indices), so
  // make one per batch, not one per index.
  using Pass = Permutation;

  // n from 1 to kMaxSize.
  Order(uint64_t seed, uint64_t n) : seed_(seed), n_(n) {
    MUSTER_CHECK(n >= 1 && n <= kMaxSize, "an order has from 1 to 2^40 positions");
  }

  uint64_t size() const { return n_; }
  Pass pass(uint64_t number) const {
    return Permutation(n_, RandomStream(seed_, Purpose::kOrder, number));
  }

  // One index alone. Whoever wants several makes the pass once.
  uint64_t at(uint64_t pass_number, uint64_t position) const { return pass(pass_number)(position); }
  // A position in the endless stream of passes: pass p / n, position p % n.
  uint64_t at_stream(uint64_t stream_position) const {
    return at(stream_position / n_, stream_position % n_);
  }

 private:
  uint64_t seed_;
  uint64_t n_;
};

}  // namespace muster::data
