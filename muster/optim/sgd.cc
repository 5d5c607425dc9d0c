// Stochastic gradient descent, as torch.optim.SGD: momentum outside the learning rate, and a first
// step that takes the gradient whole, whatever the dampening.
#include "muster/optim/kinds.h"
#include "muster/optim/pass.h"

namespace muster::optim {
namespace {

struct PlainRule {
  static constexpr int kStates = 0;
  float lr, decay;
  MUSTER_ALWAYS_INLINE void operator()(float& w, float g) const { w -= lr * (g + decay * w); }
};

template <bool kNesterov>
struct MomentumRule {
  static constexpr int kStates = 1;
  float lr, decay, momentum, take;
  MUSTER_ALWAYS_INLINE void operator()(float& w, float g, float& buffer) const {
    g += decay * w;
    buffer = momentum * buffer + take * g;
    w -= lr * (kNesterov ? g + momentum * buffer : buffer);
  }
};

class Sgd final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  std::vector<std::string> state_names() const override {
    if (options().momentum == 0) return {};
    return {"momentum_buffer"};
  }

 protected:
  void update_weights(const BlockView& block, const TensorInfo& info, const StepScalars& step,
                      const Norms&, Isa isa) const override {
    const Clip clip(options().clip.value, step.clip_factor);
    const auto lr = static_cast<float>(step.lr);
    const auto decay = static_cast<float>(weight_decay(info));
    const auto momentum = static_cast<float>(options().momentum);
    const auto take = static_cast<float>(step.step == 0 ? 1 : 1 - options().dampening);
    if (options().momentum == 0) {
      run_pass(isa, PlainRule{lr, decay}, clip, block);
    } else if (options().nesterov) {
      run_pass(isa, MomentumRule<true>{lr, decay, momentum, take}, clip, block);
    } else {
      run_pass(isa, MomentumRule<false>{lr, decay, momentum, take}, clip, block);
    }
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const config::OptimizerOptions& options) {
  return std::make_unique<Sgd>(options);
}

}  // namespace muster::optim
