// What adam, adamw and lamb have in common: running means of the gradient and of its square, and
// the corrections for their start at zero (Kingma, Ba: "Adam: a method for stochastic
// optimization", ICLR 2015). Internal to optim.
#pragma once

#include <cmath>

#include "muster/optim/pass.h"

namespace muster::optim {

struct AdamMoments {
  AdamMoments(const config::OptimizerOptions& options, int64_t step)
      : keep1(static_cast<float>(options.beta1)),
        take1(static_cast<float>(1 - options.beta1)),
        keep2(static_cast<float>(options.beta2)),
        take2(static_cast<float>(1 - options.beta2)),
        eps(static_cast<float>(options.eps)),
        correction1(1 - power(options.beta1, step + 1)),
        inverse_root2(static_cast<float>(1 / std::sqrt(1 - power(options.beta2, step + 1)))) {}

  MUSTER_ALWAYS_INLINE float mean(float old, float g) const { return keep1 * old + take1 * g; }
  MUSTER_ALWAYS_INLINE float square(float old, float g) const {
    return keep2 * old + take2 * (g * g);
  }
  // sqrt(square / correction2) + eps
  MUSTER_ALWAYS_INLINE float denominator(float square) const {
    return __builtin_sqrtf(square) * inverse_root2 + eps;
  }

  float keep1, take1, keep2, take2, eps;
  double correction1;
  float inverse_root2;
};

}  // namespace muster::optim
