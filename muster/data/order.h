// The order of samples: a keyed permutation of [0, n), computed on the fly.
//
// A shuffled list would have to be made, kept and sent around: 8 TB for 2^40 samples. Instead the
// index that stands at a position is computed from (seed, pass, position) alone, in tens of
// nanoseconds, so that any worker can compute any lane's batch of any step.
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

namespace muster::data {

// A plain value; safe for concurrent use.
class Order {
 public:
  static constexpr uint64_t kMaxSize = uint64_t{1} << 40;

  // n from 1 to kMaxSize.
  Order(uint64_t seed, uint64_t n);

  // One pass over the data: the permutation for one key. Cheap to make (the round keys, about as
  // much work as two indices), so make one per batch, not one per index.
  class Pass {
   public:
    // The sample at this position; position < n.
    uint64_t operator()(uint64_t position) const;
    // Where this sample stands: the inverse of the above; index < n.
    uint64_t position_of(uint64_t index) const;

   private:
    friend class Order;
    static constexpr int kMaxRounds = 16;
    Pass(uint64_t seed, uint64_t pass, const Order& order);
    uint64_t forward(uint64_t x) const;
    uint64_t backward(uint64_t x) const;

    uint64_t n_;
    uint64_t high_size_;
    uint64_t low_mask_;
    int low_bits_;
    int rounds_;
    std::array<uint64_t, size_t{2} * kMaxRounds> keys_;
  };

  uint64_t size() const { return n_; }
  Pass pass(uint64_t number) const { return Pass(seed_, number, *this); }

  // One index alone. Whoever wants several makes the pass once.
  uint64_t at(uint64_t pass_number, uint64_t position) const { return pass(pass_number)(position); }
  // A position in the endless stream of passes: pass p / n, position p % n.
  uint64_t at_stream(uint64_t stream_position) const {
    return at(stream_position / n_, stream_position % n_);
  }

 private:
  uint64_t seed_;
  uint64_t n_;
  uint64_t high_size_;  // a
  int low_bits_;        // b = 2^low_bits
  int rounds_;
};

}  // namespace muster::data
