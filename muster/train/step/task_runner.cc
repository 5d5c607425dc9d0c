#include "muster/train/step/task_runner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "muster/base/hash.h"
#include "muster/config/rounds.h"
#include "muster/optim/schedule.h"
#include "muster/train/step/easgd_task.h"

namespace muster::train {
namespace {

class GradientTask final : public TaskRunner {
 public:
  GradientTask(const config::Job& job, const StrategyParts& parts) : TaskRunner(job, parts) {}

  Result<ps::TaskResult> run(const TaskRows::Task& task) override {
    const int64_t step = task.number / job().lanes;
    const int lane = static_cast<int>(task.number % job().lanes);
    if (!has_samples(step, lane)) return ps::TaskResult{};
    MUSTER_RETURN_IF_ERROR(parts().tasks->fetch(weights()));
    MUSTER_TRY(const LaneResult result, compute(step, lane));
    MUSTER_RETURN_IF_ERROR(parts().tasks->push(gradient(), weights(), lr_of(step)));
    return ps::TaskResult{.loss = result.loss, .samples = result.samples, .used = result.used};
  }
};

// With sync.push_every n: n steps of a lane, and the push is the sum of their gradients. With
// optimizer.kind sgd the worker's own copy of the weights takes each of these steps, as in Downpour
// SGD (Dean et al., NIPS 2012, algorithm 7.1, n_push = n):
//
//   w' = w;  n times: w' = w' - lr g(w'), s = s + g(w')         pushed: s, read: w
//
// All with the learning rate of the first step, which the servers multiply s by. With the other
// optimizers, whose state is on servers, w' stays w.
class SummedGradientTask final : public TaskRunner {
 public:
  SummedGradientTask(const config::Job& job, const StrategyParts& parts)
      : TaskRunner(job, parts), read_(weights().size()), sum_(read_.size()) {}

  Result<ps::TaskResult> run(const TaskRows::Task& task) override {
    const int64_t steps = config::steps_of_task(job().sync);
    const int64_t first = task.number / job().lanes * steps;
    const int lane = static_cast<int>(task.number % job().lanes);
    ps::TaskResult result;
    if (!has_samples(first, lane)) return result;
    // With sync.fetch the same for several tasks, so weights() cannot be where they are kept.
    MUSTER_RETURN_IF_ERROR(parts().tasks->fetch(read_));
    const std::span<float> w = weights();
    std::ranges::copy(read_, w.begin());
    std::ranges::fill(sum_, 0.0F);
    const auto rate = static_cast<float>(job().optimizer.kind == "sgd" ? lr_of(first) : 0);
    for (int64_t step = first; step < first + steps && has_samples(step, lane); ++step) {
      MUSTER_TRY(const LaneResult computed, compute(step, lane));
      const auto g = gradient();
      for (size_t i = 0; i < g.size(); ++i) {
        w[i] -= rate * g[i];
        sum_[i] += g[i];
      }
      add(computed, result);
    }
    result.loss /= static_cast<double>(result.samples);
    if (!std::ranges::all_of(sum_, [](float value) { return std::isfinite(value); })) {
      return Error(ErrorKind::kNumerics,
                   "steps from {} on, lane {}: the sum of their gradients is not finite. Lower "
                   "optimizer.lr or sync.push_every, or clip gradients (optimizer.clip.norm)",
                   first, lane);
    }
    MUSTER_RETURN_IF_ERROR(parts().tasks->push(sum_, read_, lr_of(first)));
    return result;
  }

 private:
  std::vector<float> read_;
  std::vector<float> sum_;
};

}  // namespace

std::unique_ptr<TaskRunner> make_task_runner(const config::Job& job, const StrategyParts& parts) {
  if (config::is_elastic(job.sync)) return std::make_unique<EasgdTask>(job, parts);
  if (config::steps_of_task(job.sync) > 1) return std::make_unique<SummedGradientTask>(job, parts);
  return std::make_unique<GradientTask>(job, parts);
}

TaskRunner::TaskRunner(const config::Job& job, const StrategyParts& parts)
    : job_(job), parts_(parts), gradient_(parts.work->layout().block_elements()) {}

double TaskRunner::lr_of(int64_t step) const {
  return optim::learning_rate(job_.optimizer, step, parts_.lanes->total_steps());
}

void TaskRunner::take_frozen() {
  const auto weights = std::as_const(*parts_.arena).weights().subspan(gradient_.size());
  std::ranges::copy(weights, parts_.work->weights().subspan(gradient_.size()).begin());
}

bool TaskRunner::has_samples(int64_t step, int lane) const {
  return parts_.lanes->samples_of(step, {&lane, 1}) > 0;
}

void TaskRunner::add(const LaneResult& step, ps::TaskResult& task) {
  task.loss += step.loss * static_cast<double>(step.samples);
  task.samples += step.samples;
  task.used = hash64(&step.used, sizeof(step.used), task.used);
}

Result<LaneResult> TaskRunner::compute(int64_t step, int lane) {
  parts_.sum->begin(GradientSum::Mode::kNative, parts_.work->exponents(), {&lane, 1}, step);
  parts_.lanes->take_mean_over({lane});
  auto computed = parts_.lanes->run(step, {&lane, 1}, [] { return false; });
  if (!computed.ok()) {
    parts_.sum->abandon();
    return std::move(computed).error();
  }
  parts_.sum->flush();
  LaneResult checked = parts_.lanes->result(lane);
  checked.not_finite = parts_.sum->not_finite(lane);
  if (!checked.finite()) {
    return parts_.lanes->explain_not_finite(step, lane, checked,
                                            parts_.work->tensor_name(checked.not_finite),
                                            /*may_skip=*/false);
  }
  read_gradient();
  clip();
  return checked;
}

void TaskRunner::read_gradient() {
  const auto blocks = parts_.work->layout().blocks();
  std::ranges::fill(gradient_, 0.0f);
  std::array<float, exact::kBlockSize> scratch;
  for (size_t b = 0; b < blocks.size(); ++b) {
    std::ranges::copy(parts_.sum->read(b, scratch),
                      exact::part(std::span(gradient_), blocks[b]).begin());
  }
}

void TaskRunner::clip() {
  const auto& clip = job_.optimizer.clip;
  if (clip.value > 0) {
    const auto most = static_cast<float>(clip.value);
    for (float& value : gradient_) value = std::clamp(value, -most, most);
  }
  if (clip.norm <= 0) return;
  double squares = 0;
  for (const float value : gradient_) squares += static_cast<double>(value) * value;
  const double norm = std::sqrt(squares);
  if (norm <= clip.norm) return;
  const auto factor = static_cast<float>(clip.norm / norm);
  for (float& value : gradient_) value *= factor;
}

}  // namespace muster::train
