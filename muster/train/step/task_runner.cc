#include "muster/train/step/task_runner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

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

}  // namespace

std::unique_ptr<TaskRunner> make_task_runner(const config::Job& job, const StrategyParts& parts) {
  if (config::is_elastic(job.sync)) return std::make_unique<EasgdTask>(job, parts);
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
