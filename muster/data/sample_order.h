// Which sample stands where in the stream: the border behind which the orders are.
//
// The stream is endless: pass 0 in its order, then pass 1 in its order, ... (plan.h says which
// positions a step and lane take). An order is a pure function of position: no state, nothing that
// depends on workers or threads, and each pass has each sample exactly once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "muster/data/order.h"
#include "muster/data/plan.h"

namespace muster::data {

// Safe for concurrent use.
class SampleOrder {
 public:
  virtual ~SampleOrder() = default;
  // Samples of a pass, all of the data set.
  virtual uint64_t size() const = 0;
  // The samples at these positions of the stream; `into` has room for exactly these.
  virtual void samples(const Slice& positions, std::span<uint64_t> into) const = 0;
  // The position in the stream at which this pass has this sample: the inverse of the above.
  virtual uint64_t position_of(uint64_t pass, uint64_t sample) const = 0;

  // One sample alone. Several at once are cheaper.
  uint64_t at(uint64_t position) const {
    uint64_t sample = 0;
    samples({position, 1}, {&sample, 1});
    return sample;
  }
};

// The order `full`: a permutation of all samples in each pass (order.h).
class FullOrder final : public SampleOrder {
 public:
  FullOrder(uint64_t seed, uint64_t n) : order_(seed, n) {}

  uint64_t size() const override { return order_.size(); }
  void samples(const Slice& positions, std::span<uint64_t> into) const override;
  uint64_t position_of(uint64_t pass, uint64_t sample) const override {
    return pass * order_.size() + order_.pass(pass).position_of(sample);
  }

 private:
  Order order_;
};

}  // namespace muster::data
