#include "muster/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "muster/base/text.h"
#include "muster/optim/pass.h"

namespace muster::optim {
namespace {

bool has_length(const config::ScheduleOptions& s) {
  return s.kind == "linear" || s.kind == "cosine";
}

int64_t length(const config::ScheduleOptions& s, int64_t total_steps) {
  return s.steps > 0 ? s.steps : total_steps;
}

// How far the part after warm-up has come: 0 to 1.
double progress(const config::ScheduleOptions& s, int64_t step, int64_t total_steps) {
  if (step <= s.warmup) return 0;
  const int64_t end = length(s, total_steps);
  if (step >= end) return 1;
  return static_cast<double>(step - s.warmup) / static_cast<double>(end - s.warmup);
}

}  // namespace

Status check_schedule(const config::OptimizerOptions& options, int64_t total_steps) {
  const config::ScheduleOptions& s = options.schedule;
  const std::vector<std::string> kinds = {"constant", "cosine", "linear", "step"};
  if (std::find(kinds.begin(), kinds.end(), s.kind) == kinds.end()) {
    return Error(ErrorKind::kJob, "optimizer.schedule.kind is '{}'{}; it must be {}", s.kind,
                 did_you_mean(s.kind, kinds), join_words(kinds, "or"));
  }
  if (s.warmup < 0 || s.steps < 0 || s.every < 0) {
    return Error(ErrorKind::kJob, "optimizer.schedule: warmup, steps and every must be 0 or more");
  }
  if (!(s.factor > 0) || !std::isfinite(s.factor) || !(s.final >= 0) || !std::isfinite(s.final)) {
    return Error(ErrorKind::kJob,
                 "optimizer.schedule: factor must be above 0 and final must be 0 or more");
  }
  if (s.kind == "step" && s.every == 0) {
    return Error(ErrorKind::kJob,
                 "optimizer.schedule.every is missing: kind step needs the number of steps between "
                 "drops");
  }
  if (has_length(s) && length(s, total_steps) == 0) {
    return Error(ErrorKind::kJob,
                 "optimizer.schedule.steps is missing: a {} schedule needs a length, and the job "
                 "does not say how many steps it has",
                 s.kind);
  }
  // A job that ends during its warm-up is a short trial of a longer one.
  if (has_length(s) && s.steps > 0 && s.steps <= s.warmup) {
    return Error(ErrorKind::kJob,
                 "optimizer.schedule.warmup is {}, which leaves nothing of the schedule's {} steps",
                 s.warmup, s.steps);
  }
  return {};
}

double learning_rate(const config::OptimizerOptions& options, int64_t step, int64_t total_steps) {
  const config::ScheduleOptions& s = options.schedule;
  double rate = options.lr;
  if (s.kind == "step") {
    rate *= power(s.factor, step / s.every);
  } else if (s.kind == "linear") {
    rate *= 1 - (1 - s.final) * progress(s, step, total_steps);
  } else if (s.kind == "cosine") {
    rate *= s.final + (1 - s.final) * 0.5 * (1 + cos_pi(progress(s, step, total_steps)));
  }
  if (step < s.warmup) rate *= static_cast<double>(step + 1) / static_cast<double>(s.warmup + 1);
  return rate;
}

double cos_pi(double x) {
  if (x > 0.5) return -cos_pi(1 - x);  // 1 - x is exact here
  // cos(y) for y in [0, pi/2]: the Taylor series to y^22, whose next term is below 1e-18. Summed
  // from the smallest term.
  const double y2 = (std::numbers::pi * x) * (std::numbers::pi * x);
  double sum = 1;
  for (int n = 22; n > 0; n -= 2) sum = 1 - y2 / static_cast<double>(n * (n - 1)) * sum;
  return x == 0.5 ? 0 : sum;
}

}  // namespace muster::optim
