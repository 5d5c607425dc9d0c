// LAMB, algorithm 2 of You et al.: "Large batch optimization for deep learning: training BERT in 76
// minutes", ICLR 2020. For each tensor, with Adam's corrected moments m and v,
//   u = m / (sqrt(v) + eps) + weight_decay * w
//   w = w - lr * |w| / |u| * u
// The quotient is 1 where |w| or |u| is 0, and in tensors that do not decay (Optimizer::decays).
//
// |u| must be known before the first element can change, so u is computed twice: in measure() and
// again in update(), by the same expressions. Keeping it would cost a buffer and, as a pass
// waits for memory, more time than computing it.
#include <cmath>

#include "muster/optim/adam_moments.h"
#include "muster/optim/kinds.h"
#include "muster/optim/norm.h"

namespace muster::optim {
namespace {

struct LambDirection {
  AdamMoments moments;
  float inverse1;  // 1 over the correction of the mean
  float decay;
  MUSTER_ALWAYS_INLINE float operator()(float w, float mean, float square) const {
    return inverse1 * mean / moments.denominator(square) + decay * w;
  }
};

struct LambRule {
  static constexpr int kStates = 2;
  LambDirection direction;
  float rate;
  MUSTER_ALWAYS_INLINE void operator()(float& w, float g, float& mean, float& square) const {
    mean = direction.moments.mean(mean, g);
    square = direction.moments.square(square, g);
    w -= rate * direction(w, mean, square);
  }
};

struct DirectionSquares {
  MUSTER_ALWAYS_INLINE double operator()(LambDirection direction, Clip clip, size_t n,
                                         const float* w, const float* g, const float* mean,
                                         const float* square) const {
    return add_squares(n, [=](size_t i) MUSTER_INLINE_LAMBDA {
      const float gradient = clip(g[i]);
      return direction(w[i], direction.moments.mean(mean[i], gradient),
                       direction.moments.square(square[i], gradient));
    });
  }
};

class Lamb final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  bool needs_norms() const override { return true; }

 protected:
  Norms measure_weights(const BlockView& block, const TensorInfo& info, const StepScalars& step,
                        Isa isa) const override {
    const Clip clip(options().clip.value, step.clip_factor);
    const double update =
        run_for(isa, DirectionSquares{}, direction(info, step), clip, block.weights.size(),
                block.weights.data(), block.gradient.data(), block.states[0], block.states[1]);
    return {sum_of_squares(block.weights, 0, isa), update};
  }

  void update_weights(const BlockView& block, const TensorInfo& info, const StepScalars& step,
                      const Norms& tensor, Isa isa) const override {
    const bool adapts = decays(info) && tensor.weights > 0 && tensor.update > 0;
    const double ratio = adapts ? std::sqrt(tensor.weights) / std::sqrt(tensor.update) : 1;
    const LambRule rule{direction(info, step), static_cast<float>(step.lr * ratio)};
    run_pass(isa, rule, Clip(options().clip.value, step.clip_factor), block);
  }

 private:
  LambDirection direction(const TensorInfo& info, const StepScalars& step) const {
    const AdamMoments moments(options(), step.step);
    return {moments, static_cast<float>(1 / moments.correction1),
            static_cast<float>(weight_decay(info))};
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_lamb(const config::OptimizerOptions& options) {
  return std::make_unique<Lamb>(options);
}

}  // namespace muster::optim
