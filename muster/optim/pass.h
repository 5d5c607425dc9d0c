// The loops that optimizers share: a rule says what happens to one element, and these run it over a
// block, compiled for each instruction set (muster/base/isa.h). Internal to optim.
#pragma once

#include <cstddef>
#include <limits>

#include "muster/base/isa.h"
#include "muster/base/power.h"
#include "muster/optim/optimizer.h"

// For lambdas that a kernel calls: they must be compiled for the instruction set of the kernel.
#define MUSTER_INLINE_LAMBDA __attribute__((always_inline))

namespace muster::optim {

// What happens to a gradient before any rule sees it. Costs nothing: a pass waits for memory.
struct Clip {
  Clip(double value, double factor)
      : bound(value > 0 ? static_cast<float>(value) : std::numeric_limits<float>::infinity()),
        factor(static_cast<float>(factor)) {}
  MUSTER_ALWAYS_INLINE float operator()(float g) const {
    g = g > bound ? bound : g;  // NaN stays NaN
    g = g < -bound ? -bound : g;
    return g * factor;
  }
  float bound;
  float factor;
};

// One pass over a block. Rule::kStates, from 0 to 2, is how many state buffers its call operator
// takes:
//   void operator()(float& w, float g, float& state0, float& state1) const
template <typename Rule>
struct Pass {
  MUSTER_ALWAYS_INLINE void operator()(Rule rule, Clip clip, size_t n, float* __restrict w,
                                       const float* __restrict g, float* __restrict a,
                                       float* __restrict b) const {
    for (size_t i = 0; i < n; ++i) {
      if constexpr (Rule::kStates == 0) rule(w[i], clip(g[i]));
      if constexpr (Rule::kStates == 1) rule(w[i], clip(g[i]), a[i]);
      if constexpr (Rule::kStates == 2) rule(w[i], clip(g[i]), a[i], b[i]);
    }
  }
};

template <typename Rule>
void run_pass(Isa isa, const Rule& rule, const Clip& clip, const BlockView& block) {
  run_for(isa, Pass<Rule>{}, rule, clip, block.weights.size(), block.weights.data(),
          block.gradient.data(), block.states[0], block.states[1]);
}

// The sum of value(i)^2 for i in [0, n). Sixteen sums side by side, so that it vectorises without
// the compiler having to reorder anything (it must not), then added pairwise. This order is the
// definition: bits depend on it.
template <typename Value>
MUSTER_ALWAYS_INLINE double add_squares(size_t n, Value value) {
  constexpr size_t kWidth = 16;
  double sums[kWidth] = {};
  size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    for (size_t j = 0; j < kWidth; ++j) {
      const auto x = static_cast<double>(value(i + j));
      sums[j] += x * x;
    }
  }
  for (size_t j = 0; i + j < n; ++j) {
    const auto x = static_cast<double>(value(i + j));
    sums[j] += x * x;
  }
  for (size_t width = kWidth / 2; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) sums[j] += sums[j + width];
  }
  return sums[0];
}

// norm.h's, of gradients as a rule sees them.
double sum_of_squares(std::span<const float> x, const Clip& clip, Isa isa);

}  // namespace muster::optim
