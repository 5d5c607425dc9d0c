// Adagrad, as torch.optim.Adagrad (without lr_decay, and with sums that start at zero): Duchi,
// Hazan, Singer: "Adaptive subgradient methods for online learning and stochastic optimization",
// JMLR 2011.
#include "muster/optim/kinds.h"
#include "muster/optim/pass.h"

namespace muster::optim {
namespace {

struct AdagradRule {
  static constexpr int kStates = 1;
  float lr, decay, eps;
  MUSTER_ALWAYS_INLINE void operator()(float& w, float g, float& sum) const {
    g += decay * w;
    sum += g * g;
    w -= lr * g / (__builtin_sqrtf(sum) + eps);
  }
};

class Adagrad final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  std::vector<std::string> state_names() const override { return {"sum"}; }

 protected:
  void update_weights(const BlockView& block, const TensorInfo& info, const StepScalars& step,
                      const Norms&, Isa isa) const override {
    const AdagradRule rule{static_cast<float>(step.lr), static_cast<float>(weight_decay(info)),
                           static_cast<float>(options().eps)};
    run_pass(isa, rule, Clip(options().clip.value, step.clip_factor), block);
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_adagrad(const config::OptimizerOptions& options) {
  return std::make_unique<Adagrad>(options);
}

}  // namespace muster::optim
