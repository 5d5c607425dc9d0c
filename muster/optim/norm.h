// Norms, the same on every machine, and clipping by them.
#pragma once

#include <span>

#include "muster/base/isa.h"

namespace muster::optim {

// The sum of x^2, each x first clamped to +-clip_value unless that is 0 (as Optimizer::update will
// do). In double and in an order that depends on the length alone, so: same bits everywhere. For
// whole tensors, call it block by block and add the results in block order.
double sum_of_squares(std::span<const float> x, double clip_value = 0, Isa isa = best_isa());

// What to multiply gradients by so that their norm is at most max_norm; 1 if max_norm is 0. As
// torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)), NaN for a norm of NaN.
double clip_factor(double norm, double max_norm);

}  // namespace muster::optim
