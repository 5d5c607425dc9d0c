// RMSprop, as torch.optim.RMSprop (not centered); Tieleman, Hinton: "Lecture 6.5", Coursera 2012.
#include "muster/optim/kinds.h"
#include "muster/optim/pass.h"

namespace muster::optim {
namespace {

struct RmspropRule {
  static constexpr int kStates = 1;
  float lr, decay, eps, keep, take;
  MUSTER_ALWAYS_INLINE float direction(float w, float g, float& square) const {
    g += decay * w;
    square = keep * square + take * (g * g);
    return g / (__builtin_sqrtf(square) + eps);
  }
  MUSTER_ALWAYS_INLINE void operator()(float& w, float g, float& square) const {
    w -= lr * direction(w, g, square);
  }
};

struct RmspropMomentumRule {
  static constexpr int kStates = 2;
  RmspropRule plain;
  float momentum;
  MUSTER_ALWAYS_INLINE void operator()(float& w, float g, float& square, float& buffer) const {
    buffer = momentum * buffer + plain.direction(w, g, square);
    w -= plain.lr * buffer;
  }
};

class Rmsprop final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  std::vector<std::string> state_names() const override {
    if (options().momentum == 0) return {"square_avg"};
    return {"square_avg", "momentum_buffer"};
  }

 protected:
  void update_weights(const BlockView& block, const TensorInfo& info, const StepScalars& step,
                      const Norms&, Isa isa) const override {
    const Clip clip(options().clip.value, step.clip_factor);
    const RmspropRule rule{static_cast<float>(step.lr), static_cast<float>(weight_decay(info)),
                           static_cast<float>(options().eps), static_cast<float>(options().alpha),
                           static_cast<float>(1 - options().alpha)};
    if (options().momentum == 0) {
      run_pass(isa, rule, clip, block);
    } else {
      const auto momentum = static_cast<float>(options().momentum);
      run_pass(isa, RmspropMomentumRule{rule, momentum}, clip, block);
    }
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_rmsprop(const config::OptimizerOptions& options) {
  return std::make_unique<Rmsprop>(options);
}

}  // namespace muster::optim
