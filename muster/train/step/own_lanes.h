// Lanes that a program computes itself, in a training loop of its own (muster/own_loop), instead of
// with the job's model and loss.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "muster/base/result.h"

namespace muster::train {

// What such a job has as model.use and as data.train.format.
inline constexpr const char* kOwnLoop = "own-loop";

struct OwnLane {
  int64_t step = 0;
  int lane = 0;
  std::span<const uint64_t> samples;  // which ones, by their number in the data set
  float weight = 0;                   // the gradient wanted is that of weight * mean loss
};

// The functions that the program has are called by the thread that runs the steps.
struct OwnLanes {
  // Forward and backward of one lane by the program; returns the mean loss. The gradients come by
  // the hooks of the module's parameters (lane_net.h).
  std::function<Result<double>(const OwnLane&)> run;
  // There are no more lanes before the next commit; `step` steps are committed. Returns when the
  // program agrees to go on; an error if it has left.
  std::function<Status(int64_t step)> over;
  // This worker's training has ended after that many steps: with the job, or because it was told to
  // leave.
  std::function<void(int64_t step, bool with_the_job)> trained;

  // Set by the program: false if no command can start it again as a worker, so that its run cannot
  // be resumed (a notebook).
  bool resumable = true;
  // Set by the program: a backward pass of the lane is under way. Gradients at other times are a
  // mistake of the program.
  bool takes_gradients = false;
  // Set by the session, for the program to call from any thread while it has long work to do.
  std::function<void()> progress;
  // Set by the session while a lane is only tried, before training: why one may be that small, and
  // what to do if the model cannot be trained on it. Else empty.
  std::string trial;
};

}  // namespace muster::train
