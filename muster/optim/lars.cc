// LARS, algorithm 1 of You, Gitman, Ginsburg: "Large batch training of convolutional networks",
// 2017. For each tensor,
//   rate = lr * trust * |w| / (|g| + weight_decay * |w|)
//   v = momentum * v + rate * (g + weight_decay * w);  w = w - v
// Unlike in sgd, the rate is inside the momentum. Where the paper's quotient says nothing (|w| or
// |g| is 0), and in tensors that do not decay (Optimizer::decays), rate = lr.
#include <cmath>

#include "muster/optim/kinds.h"
#include "muster/optim/norm.h"
#include "muster/optim/pass.h"

namespace muster::optim {
namespace {

struct LarsRule {
  static constexpr int kStates = 1;
  float rate, decay, momentum;
  MUSTER_ALWAYS_INLINE void operator()(float& w, float g, float& buffer) const {
    buffer = momentum * buffer + rate * (g + decay * w);
    w -= buffer;
  }
};

class Lars final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }
  bool needs_norms() const override { return true; }

 protected:
  Norms measure_weights(const BlockView& block, const TensorInfo&, const StepScalars& step,
                        Isa isa) const override {
    const Clip clip(options().clip.value, step.clip_factor);
    return {sum_of_squares(block.weights, 0, isa), sum_of_squares(block.gradient, clip, isa)};
  }

  void update_weights(const BlockView& block, const TensorInfo& info, const StepScalars& step,
                      const Norms& tensor, Isa isa) const override {
    const double decay = weight_decay(info);
    const double w = std::sqrt(tensor.weights);
    const double g = std::sqrt(tensor.update);
    const bool adapts = decays(info) && w > 0 && g > 0;
    const double rate = adapts ? step.lr * options().trust * w / (g + decay * w) : step.lr;
    const LarsRule rule{static_cast<float>(rate), static_cast<float>(decay),
                        static_cast<float>(options().momentum)};
    run_pass(isa, rule, Clip(options().clip.value, step.clip_factor), block);
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(const config::OptimizerOptions& options) {
  return std::make_unique<Lars>(options);
}

}  // namespace muster::optim
