// Adam and AdamW, as torch.optim.Adam and AdamW (without amsgrad). They differ in weight decay
// alone: Adam adds it to the gradient, AdamW shrinks the weight by itself (Loshchilov, Hutter:
// "Decoupled weight decay regularization", ICLR 2019).
#include "muster/optim/adam_moments.h"
#include "muster/optim/kinds.h"

namespace muster::optim {
namespace {

struct AdamRule {
  static constexpr int kStates = 2;
  AdamMoments moments;
  float rate;   // lr over the correction of the mean
  float decay;  // Adam's
  float keep;   // AdamW's: 1 - lr * weight_decay
  MUSTER_ALWAYS_INLINE void operator()(float& w, float g, float& mean, float& square) const {
    g += decay * w;
    mean = moments.mean(mean, g);
    square = moments.square(square, g);
    w = keep * w - rate * mean / moments.denominator(square);
  }
};

class Adam final : public Optimizer {
 public:
  Adam(const config::OptimizerOptions& options, bool decoupled)
      : Optimizer(options), decoupled_(decoupled) {}

  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }

 protected:
  void update_weights(const BlockView& block, const TensorInfo& info, const StepScalars& step,
                      const Norms&, Isa isa) const override {
    const AdamMoments moments(options(), step.step);
    const double decay = weight_decay(info);
    const AdamRule rule{moments, static_cast<float>(step.lr / moments.correction1),
                        static_cast<float>(decoupled_ ? 0 : decay),
                        static_cast<float>(decoupled_ ? 1 - step.lr * decay : 1)};
    run_pass(isa, rule, Clip(options().clip.value, step.clip_factor), block);
  }

 private:
  const bool decoupled_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adam(const config::OptimizerOptions& options) {
  return std::make_unique<Adam>(options, false);
}

std::unique_ptr<Optimizer> make_adamw(const config::OptimizerOptions& options) {
  return std::make_unique<Adam>(options, true);
}

}  // namespace muster::optim
