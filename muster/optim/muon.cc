// Muon, as torch.optim.Muon with adjust_lr_fn="match_rms_adamw": for matrices,
//   m = momentum * m + (1 - momentum) * g;   d = nesterov ? (1 - momentum) * g + momentum * m : m
//   w = (1 - lr * weight_decay) * w - lr * 0.2 * sqrt(max(rows, columns)) * orthogonalized d
// with newton_schulz.h. Jordan et al.: "Muon: an optimizer for hidden layers in neural networks",
// 2024; the factor, with which an update is about as large as one of AdamW, so that both take the
// same learning rate, is that of Liu et al., arXiv 2502.16982.
//
// A tensor of more than two dimensions is a matrix of as many rows as its first one. Vectors, also
// those that are stored as matrices, the layers that are embeddings, and what optimizer.adamw_on
// names are updated by AdamW. Torch leaves that to a second optimizer.
#include <fnmatch.h>

#include <algorithm>
#include <cmath>

#include "muster/optim/kinds.h"
#include "muster/optim/pass.h"

namespace muster::optim {
namespace {

struct Accumulate {
  MUSTER_ALWAYS_INLINE void operator()(Clip clip, float keep, float take, bool nesterov, size_t n,
                                       const float* __restrict g, float* __restrict m,
                                       float* __restrict direction) const {
    for (size_t i = 0; i < n; ++i) {
      const float gradient = clip(g[i]);
      const float mean = keep * m[i] + take * gradient;
      m[i] = mean;
      direction[i] = nesterov ? take * gradient + keep * mean : mean;
    }
  }
};

struct Follow {
  MUSTER_ALWAYS_INLINE void operator()(float keep, float rate, size_t n,
                                       const float* __restrict direction,
                                       float* __restrict w) const {
    for (size_t i = 0; i < n; ++i) w[i] = keep * w[i] - rate * direction[i];
  }
};

class Muon final : public Optimizer {
 public:
  explicit Muon(const config::OptimizerOptions& options)
      : Optimizer(options), adamw_(make_adamw(options)) {}

  // The first is AdamW's exp_avg for tensors that it updates; the second is all zeros for the rest.
  std::vector<std::string> state_names() const override {
    return {"momentum_buffer", "exp_avg_sq"};
  }

  bool takes_matrix(const TensorInfo& info) const override {
    if (info.role != Role::kWeight || info.dims < 2 || info.lookup) return false;
    if (std::min(info.rows, info.columns) < 2) return false;
    return std::ranges::none_of(options().adamw_on, [&](const std::string& pattern) {
      return fnmatch(pattern.c_str(), info.name.c_str(), 0) == 0;
    });
  }

  void accumulate(const BlockView& block, const StepScalars& step, std::span<float> direction,
                  Isa isa) const override {
    run_for(isa, Accumulate{}, Clip(options().clip.value, step.clip_factor),
            static_cast<float>(options().momentum), static_cast<float>(1 - options().momentum),
            options().nesterov, direction.size(), block.gradient.data(), block.states[0],
            direction.data());
  }

  void follow(const BlockView& block, const TensorInfo& info, const StepScalars& step,
              Isa isa) const override {
    const double size = std::sqrt(static_cast<double>(std::max(info.rows, info.columns)));
    run_for(isa, Follow{}, static_cast<float>(1 - step.lr * weight_decay(info)),
            static_cast<float>(0.2 * step.lr * size), block.weights.size(), block.gradient.data(),
            block.weights.data());
  }

 protected:
  void update_weights(const BlockView& block, const TensorInfo& info, const StepScalars& step,
                      const Norms& tensor, Isa isa) const override {
    adamw_->update(block, info, step, tensor, isa);
  }

 private:
  const std::unique_ptr<Optimizer> adamw_;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(const config::OptimizerOptions& options) {
  return std::make_unique<Muon>(options);
}

}  // namespace muster::optim
