// Lanes that a program computes itself, in a training loop of its own (muster/own_loop), instead of
// with the job's model and loss.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "muster/base/result.h"

namespace muster::train {

struct OwnLane {
  int64_t step = 0;
  int lane = 0;
  std::span<const uint64_t> samples;  // which ones, by their number in the data set
  float weight = 0;                   // the gradient wanted is that of weight * mean loss
};

// Both are called by the thread that runs the steps.
struct OwnLanes {
  // Forward and backward of one lane by the program; returns the mean loss. The gradients come by
  // the hooks of the module's parameters (lane_net.h).
  std::function<Result<double>(const OwnLane&)> run;
  // There are no more lanes in this step. Returns when the program agrees to go on.
  std::function<void()> over;
};

}  // namespace muster::train
