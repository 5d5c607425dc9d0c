#include "muster/optim/norm.h"

#include "muster/optim/pass.h"

namespace muster::optim {
namespace {

struct ClippedSquares {
  MUSTER_ALWAYS_INLINE double operator()(const float* x, size_t n, Clip clip) const {
    return add_squares(n, [=](size_t i) MUSTER_INLINE_LAMBDA { return clip(x[i]); });
  }
};

}  // namespace

double sum_of_squares(std::span<const float> x, const Clip& clip, Isa isa) {
  return run_for(isa, ClippedSquares{}, x.data(), x.size(), clip);
}

double sum_of_squares(std::span<const float> x, double clip_value, Isa isa) {
  return sum_of_squares(x, Clip(clip_value, 1), isa);
}

double clip_factor(double norm, double max_norm) {
  if (max_norm == 0) return 1;
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1 ? 1 : factor;
}

}  // namespace muster::optim
