// Updates the weights: the summed gradient of each block becomes float and goes through the
// optimizer. The team takes blocks one by one.
//
// Norms, if the job clips by norm or the optimizer needs them, are sums of squares in double, block
// by block, added up in the order of blocks: the same bits on any number of threads.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "muster/config/job.h"
#include "muster/optim/optimizer.h"
#include "muster/train/state/arena.h"
#include "muster/train/step/team.h"

namespace muster::train {

class Updater {
 public:
  // The gradient of a block, in `scratch`, which has room for a block, or elsewhere. May be called
  // by several threads.
  using Gradient = std::function<std::span<const float>(size_t block, std::span<float> scratch)>;
  // All must outlive it.
  Updater(const config::OptimizerOptions& options, const optim::Optimizer& optimizer, Arena& arena,
          Gradient gradient, Team& team);

  // One update with the gradient as it is. Returns the norm of the gradient before clipping; -1: it
  // was not needed.
  double run(optim::StepScalars scalars);

 private:
  // Calls body for every block, spread over the team; scratch has room for one block.
  void for_each_block(const std::function<void(size_t block, std::span<float> scratch)>& body);
  double gradient_norm();
  void measure_norms(const optim::StepScalars& scalars);
  const optim::TensorInfo& info_of(size_t block) const;
  optim::BlockView view_block(size_t block, std::span<float> scratch);

  const config::OptimizerOptions& options_;
  const optim::Optimizer& optimizer_;
  Arena& arena_;
  const Gradient gradient_;
  Team& team_;
  std::vector<double> squares_;              // by block
  std::vector<optim::Norms> block_norms_;    // by block
  std::vector<optim::Norms> tensor_norms_;   // by tensor
  std::vector<std::vector<float>> scratch_;  // by thread, one block each
};

}  // namespace muster::train
