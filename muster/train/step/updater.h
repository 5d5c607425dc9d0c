// Updates the weights: the summed gradient of each block becomes float and goes through the
// optimizer. The team takes blocks one by one, and matrices that the optimizer wants as a whole one
// by one or, if they are large, together.
//
// Norms, if the job clips by norm or the optimizer needs them, are sums of squares in double, block
// by block, added up in the order of blocks: the same bits on any number of threads.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "muster/config/job.h"
#include "muster/optim/newton_schulz.h"
#include "muster/optim/optimizer.h"
#include "muster/train/membership/vitals.h"
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
  double run(optim::StepScalars scalars, const Vitals& vitals);

 private:
  // Calls body for every block, spread over the team; scratch has room for one block.
  void for_each_block(const std::function<void(size_t block, std::span<float> scratch)>& body);
  double gradient_norm();
  void measure_norms(const optim::StepScalars& scalars);
  // Of tensors that are updated as matrices.
  void find_directions(const optim::StepScalars& scalars, const Vitals& vitals);
  std::span<float> direction_of(size_t tensor);
  const optim::TensorInfo& info_of(size_t block) const;
  optim::BlockView view_block(size_t block, std::span<float> scratch);
  // With its direction in place of the gradient, and without states.
  optim::BlockView view_direction(size_t block);

  const config::OptimizerOptions& options_;
  const optim::Optimizer& optimizer_;
  Arena& arena_;
  const Gradient gradient_;
  Team& team_;
  std::vector<double> squares_;              // by block
  std::vector<optim::Norms> block_norms_;    // by block
  std::vector<optim::Norms> tensor_norms_;   // by tensor
  std::vector<std::vector<float>> scratch_;  // by thread, one block each
  std::vector<bool> matrix_;                 // by tensor: whether it is updated as a matrix
  // Of these, those that are large enough for all threads together, and those that are not.
  std::vector<size_t> large_;
  std::vector<size_t> small_;
  std::vector<float> directions_;                   // like the weights; empty: no matrix
  std::vector<optim::NewtonSchulz> newton_schulz_;  // by thread
};

}  // namespace muster::train
