#include "muster/ps/row_optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "muster/base/check.h"
#include "muster/base/power.h"

namespace muster::ps {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"sgd", "adagrad", "row_adagrad", "adam",
                                                    "ftrl"};

// Rules: n weights w, with their state behind them, and the gradient g.
struct Sgd {
  float lr;
  MUSTER_ALWAYS_INLINE void operator()(float* __restrict w, const float* __restrict g,
                                       size_t n) const {
    for (size_t i = 0; i < n; ++i) w[i] -= lr * g[i];
  }
};

struct Adagrad {
  float lr, eps;
  MUSTER_ALWAYS_INLINE void operator()(float* __restrict w, const float* __restrict g,
                                       size_t n) const {
    float* __restrict sums = w + n;
    for (size_t i = 0; i < n; ++i) {
      sums[i] += g[i] * g[i];
      w[i] -= lr * g[i] / (__builtin_sqrtf(sums[i]) + eps);
    }
  }
};

struct RowAdagrad {
  float lr, eps;
  MUSTER_ALWAYS_INLINE void operator()(float* __restrict w, const float* __restrict g,
                                       size_t n) const {
    // Eight sums side by side, then pairwise: this order is the definition.
    constexpr size_t kWidth = 8;
    float sums[kWidth] = {};
    size_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      for (size_t j = 0; j < kWidth; ++j) sums[j] += g[i + j] * g[i + j];
    }
    for (size_t j = 0; i + j < n; ++j) sums[j] += g[i + j] * g[i + j];
    for (size_t half = kWidth / 2; half > 0; half /= 2) {
      for (size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
    }
    float& sum = w[n];
    sum += sums[0] / static_cast<float>(n);
    const float denominator = __builtin_sqrtf(sum) + eps;
    for (size_t k = 0; k < n; ++k) w[k] -= lr * g[k] / denominator;
  }
};

struct Adam {
  float rate, take1, take2, eps;
  MUSTER_ALWAYS_INLINE void operator()(float* __restrict w, const float* __restrict g,
                                       size_t n) const {
    float* __restrict mean = w + n;
    float* __restrict square = w + 2 * n;
    for (size_t i = 0; i < n; ++i) {
      mean[i] += take1 * (g[i] - mean[i]);
      square[i] += take2 * (g[i] * g[i] - square[i]);
      w[i] -= rate * mean[i] / (__builtin_sqrtf(square[i]) + eps);
    }
  }
};

struct Ftrl {
  float lr, beta, l1, l2;
  MUSTER_ALWAYS_INLINE void operator()(float* __restrict w, const float* __restrict g,
                                       size_t n) const {
    float* __restrict z = w + n;
    float* __restrict sums = w + 2 * n;
    for (size_t i = 0; i < n; ++i) {
      const float sum = sums[i] + g[i] * g[i];
      const float root = __builtin_sqrtf(sum);
      z[i] += g[i] - (root - __builtin_sqrtf(sums[i])) / lr * w[i];
      sums[i] = sum;
      const float beyond = __builtin_fabsf(z[i]) - l1;
      const float size = beyond / ((beta + root) / lr + l2);
      w[i] = beyond <= 0 ? 0.0F : z[i] > 0 ? -size : size;
    }
  }
};

template <typename Rule>
struct OverRows {
  MUSTER_ALWAYS_INLINE void operator()(Rule rule, float* const* rows, size_t count,
                                       const float* gradients, size_t width) const {
    for (size_t r = 0; r < count; ++r) rule(rows[r], gradients + r * width, width);
  }
};

}  // namespace

std::string_view rule_name(RowRule rule) { return kNames[static_cast<size_t>(rule)]; }

Result<RowRule> rule_named(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<RowRule>(i);
  }
  return Error(
      ErrorKind::kJob,
      "'{}' is no optimizer of a table; there are sgd, adagrad, row_adagrad, adam and ftrl", name);
}

size_t RowOptimizer::state(size_t width) const {
  switch (rule) {
    case RowRule::kSgd:
      return 0;
    case RowRule::kRowAdagrad:
      return 1;
    case RowRule::kAdagrad:
      return width;
    case RowRule::kAdam:
    case RowRule::kFtrl:
      return 2 * width;
  }
  MUSTER_CHECK(false, "an unknown rule");
  return 0;
}

void RowOptimizer::begin(float* row, size_t width) const {
  std::fill_n(row + width, state(width), 0.0F);
  if (rule != RowRule::kFtrl) return;
  for (size_t i = 0; i < width; ++i) {
    if (row[i] == 0) continue;
    row[width + i] = static_cast<float>(-row[i] * (beta / lr + l2) - std::copysign(l1, row[i]));
  }
}

void RowOptimizer::update(std::span<float* const> rows, const float* gradients, size_t width,
                          int64_t t, double step_lr, Isa isa) const {
  const auto run = [&](auto kernel) {
    run_for(isa, OverRows<decltype(kernel)>{}, kernel, rows.data(), rows.size(), gradients, width);
  };
  const auto f = [](double x) { return static_cast<float>(x); };
  switch (rule) {
    case RowRule::kSgd:
      return run(Sgd{f(step_lr)});
    case RowRule::kAdagrad:
      return run(Adagrad{f(step_lr), f(eps)});
    case RowRule::kRowAdagrad:
      return run(RowAdagrad{f(step_lr), f(eps)});
    case RowRule::kAdam: {
      const double rate = step_lr * std::sqrt(1 - power(beta2, t)) / (1 - power(beta1, t));
      return run(Adam{f(rate), f(1 - beta1), f(1 - beta2), f(eps)});
    }
    case RowRule::kFtrl:
      return run(Ftrl{f(lr), f(beta), f(l1), f(l2)});
  }
}

}  // namespace muster::ps
