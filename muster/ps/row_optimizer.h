// How a row changes when it gets a gradient.
//
// A row has `width` weights and, behind them, the optimizer's state. Only rows that get a gradient
// are touched: sums and moments of the others stay as they are ("lazy", "sparse").
//
// clang-format off
//   sgd           w = w - lr g
//   adagrad       n = n + g^2;  w = w - lr g / (sqrt(n) + eps)
//                 as torch.optim.Adagrad
//   row_adagrad   the same with one n for the row: n = n + mean of g^2 over the row
//                 as FBGEMM's
//   adam          m = m + (1 - beta1)(g - m);  v = v + (1 - beta2)(g^2 - v);
//                 w = w - lr sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + eps)
//                 as torch.optim.SparseAdam
//   ftrl          s = (sqrt(n + g^2) - sqrt(n)) / a;  z = z + g - s w;  n = n + g^2;
//                 w = 0 if |z| <= l1, else -(z - sign(z) l1) / ((beta + sqrt(n)) / a + l2)
//                 McMahan et al.: "Ad click prediction: a view from the trenches", KDD 2013.
//                 a is `lr` of the options and never changes, as z has terms with it. z begins with
//                 what gives the row's first weights
// clang-format on
//
// t is the number of the step, counted from 1, of the whole job and not of the row, as in PyTorch.
//
// Bits. Every operation is one of IEEE 754, in an order that is written down, so a row is the same
// on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/isa.h"
#include "muster/base/result.h"

namespace muster::ps {

enum class RowRule : uint8_t { kSgd, kAdagrad, kRowAdagrad, kAdam, kFtrl };

std::string_view rule_name(RowRule rule);
Result<RowRule> rule_named(std::string_view name);

struct RowOptimizer {
  RowRule rule = RowRule::kRowAdagrad;
  double lr = 0.01;
  double eps = 1e-8;  // more than 0
  double beta1 = 0.9;
  double beta2 = 0.999;
  double beta = 1;  // ftrl's
  double l1 = 0;
  double l2 = 0;

  // Floats of state behind the weights.
  size_t state(size_t width) const;
  // Sets the state of a row that has its first weights.
  void begin(float* row, size_t width) const;
  // rows[i] points to weights and state of a row; its gradient is at gradients + i * width. No row
  // twice. `step_lr` is used in place of `lr`.
  void update(std::span<float* const> rows, const float* gradients, size_t width, int64_t t,
              double step_lr, Isa isa = best_isa()) const;
};

}  // namespace muster::ps
