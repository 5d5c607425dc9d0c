// The learning rate of each step: a pure function of the options and the step's number, so that a
// resumed job, or a worker that joins, needs to be told nothing.
//
//   warm-up    steps 0 to warmup - 1: lr * (step + 1) / (warmup + 1); step `warmup` has the full
//   rate constant   lr step       lr * factor^(step / every), counted from the job's first step,
//   warm-up included linear     from lr at the end of warm-up to lr * final at step `steps`, and
//   from there on cosine     the same, along half a cosine
//
// `steps` is the job's total unless the schedule gives its own.
#pragma once

#include <cstdint>

#include "muster/base/result.h"
#include "muster/config/job.h"

namespace muster::optim {

// total_steps: what the job will run; 0 if nobody knows (a job that ends by time). Fails if the
// schedule has no meaning: unknown kind, a length that is missing, or one of its own that is not
// longer than its warm-up.
Status check_schedule(const config::OptimizerOptions& options, int64_t total_steps);

// The schedule must have passed check_schedule, with the same total_steps.
double learning_rate(const config::OptimizerOptions& options, int64_t step, int64_t total_steps);

// cos(pi * x) for x in [0, 1], to within 1e-15. By additions and multiplications alone, which
// IEEE 754 pins down: std::cos may differ in its last bit between C libraries and processors, and
// a learning rate must not.
double cos_pi(double x);

}  // namespace muster::optim
