// Dropout whose mask depends on (seed, step, lane, layer) and on nothing else.
#pragma once

#include <cstdint>
#include <memory>

#include "muster/base/random.h"
#include "muster/model/net.h"

namespace muster::model {

// How many dropouts a net may have: their numbers are part of the keys of random numbers.
inline constexpr int64_t kMostDropouts = int64_t{1} << 20;

// In training, zeroes elements with probability p and divides the others by 1 - p; in evaluation
// does nothing. Works on float32 and bfloat16. The mask is not stored: backward computes it again,
// which costs less than reading it back from memory.
//
// Called twice within one step (a module used in two places), it applies the same mask twice.
class Dropout : public Layer {
 public:
  // 0 <= p < 1.
  Dropout(double p, std::shared_ptr<const LaneContext> lane);
  torch::Tensor forward(const torch::Tensor& input) override;

  double p() const { return p_; }
  int64_t number() const { return number_; }
  void set_number(int64_t number);

 private:
  double p_;
  std::shared_ptr<const LaneContext> lane_;
  int64_t number_ = -1;
};

// Gives each Dropout its layer number, in the order of named_modules(). build() does it; a net made
// by hand needs it before its first forward in training.
void number_dropouts(Net& net);

}  // namespace muster::model
