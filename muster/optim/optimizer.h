// Optimizers on flat buffers.
//
// An Optimizer is a formula and its options, nothing more: weights, gradients and state (momentum
// and the like) live in flat buffers of the caller (muster/exact/block_layout.h), which makes them
// easy to checkpoint, to send to a worker that joins, and later to split over workers. It is given
// one block at a time and updates it in one fused pass, element by element (muon in two):
//
//   any order of blocks, any number of threads and any instruction set give the same bits.
//
// A step, for the caller:
//   1. If clip.norm is on: norm.h's sum_of_squares over the blocks of all weights, added in block
//      order; clip_factor of its square root goes into StepScalars.
//   2. If needs_norms(): measure() every block, add up Norms over each tensor, in block order.
//   3. For each tensor that takes_matrix(): accumulate() every block, then orthogonalize the
//      direction (newton_schulz.h), then follow() it, block by block.
//   4. update() every other block. State must be zero before step 0.
//
// Formulas and names are those of torch.optim; lars and lamb follow their papers, as said in their
// files. Where torch works in double, so do we; what changes an element is float.
//
// Safe for concurrent use on different blocks. No thread of its own, no I/O, no libtorch. To add an
// optimizer: write its rule as in rmsprop.cc, and name it in kinds.h and make_optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/isa.h"
#include "muster/base/result.h"
#include "muster/config/job.h"

namespace muster::optim {

enum class Role : uint8_t {
  kWeight,
  kFrozen,    // never changes
  kStatistic  // a running mean: its "gradient" is the batch's statistic, see TensorInfo::momentum
};

struct TensorInfo {
  std::string name;
  int dims = 0;
  Role role = Role::kWeight;
  double momentum = 0.1;  // statistics: w = (1 - momentum) * w + momentum * g, as torch's BatchNorm
  // Of two or more dimensions, as a matrix: the first one, and all others together.
  size_t rows = 0;
  size_t columns = 0;
  bool lookup = false;  // an embedding's: its rows are looked up, not multiplied
};

// One block of every flat buffer.
struct BlockView {
  size_t tensor = 0;
  std::span<float> weights;
  std::span<const float> gradient;  // as long as weights
  float* states[4] = {};  // in the order of state_names(), each pointing to this block's part
};

struct StepScalars {
  int64_t step = 0;  // updates before this one; a step that was skipped is none
  double lr = 0;     // learning_rate(), schedule.h
  double clip_factor = 1;
};

// Sums of squares over a block or, added up in block order, over a tensor.
struct Norms {
  double weights = 0;
  double update = 0;  // lars: the gradient, lamb: the step Adam would take

  Norms& operator+=(const Norms& other) {
    weights += other.weights;
    update += other.update;
    return *this;
  }
};

class Optimizer {
 public:
  explicit Optimizer(config::OptimizerOptions options) : options_(std::move(options)) {}
  virtual ~Optimizer() = default;

  // As torch.optim calls them: "momentum_buffer", "exp_avg", ... At most four. (Muon's serve AdamW
  // too, see muon.cc.)
  virtual std::vector<std::string> state_names() const = 0;
  // Whether update() needs what measure() returns.
  virtual bool needs_norms() const { return false; }

  // Whether an update of this tensor depends on the whole of it as a matrix: step 3 above.
  virtual bool takes_matrix(const TensorInfo& info) const;
  // Takes the gradient, clipped as by update(), into the state, and writes where that leads to
  // `direction`.
  virtual void accumulate(const BlockView& block, const StepScalars& step,
                          std::span<float> direction, Isa isa = best_isa()) const;
  // Moves the weights in the direction that block.gradient has.
  virtual void follow(const BlockView& block, const TensorInfo& info, const StepScalars& step,
                      Isa isa = best_isa()) const;

  // Changes nothing. Zeros for tensors that are not weights.
  Norms measure(const BlockView& block, const TensorInfo& info, const StepScalars& step,
                Isa isa = best_isa()) const;
  // Gradients are clamped to clip.value, if that is on, then multiplied by the clip factor, before
  // anything else. Neither happens to statistics. `tensor` is ignored unless needs_norms().
  void update(const BlockView& block, const TensorInfo& info, const StepScalars& step,
              const Norms& tensor = {}, Isa isa = best_isa()) const;

  const config::OptimizerOptions& options() const { return options_; }

 protected:
  // These see weights only.
  virtual Norms measure_weights(const BlockView& block, const TensorInfo& info,
                                const StepScalars& step, Isa isa) const;
  virtual void update_weights(const BlockView& block, const TensorInfo& info,
                              const StepScalars& step, const Norms& tensor, Isa isa) const = 0;

  // Whether optimizer.decay_on takes this tensor in. lars and lamb adapt the rate of just these, as
  // is usual: a bias or a norm's gain starts at 0 or 1, and says little by its size.
  bool decays(const TensorInfo& info) const;
  double weight_decay(const TensorInfo& info) const {
    return decays(info) ? options_.weight_decay : 0;
  }

 private:
  const config::OptimizerOptions options_;
};

// Whether a state of that name is a sum or a mean of squares: never negative, and of second order.
bool is_square(std::string_view state);

// The kinds there are, in alphabetical order.
std::vector<std::string> optimizer_kinds();

// Fails with a sentence that names the option if one is out of its range.
Result<std::unique_ptr<Optimizer>> make_optimizer(const config::OptimizerOptions& options);

}  // namespace muster::optim
