#include "muster/train/step/task_runner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "muster/optim/schedule.h"

namespace muster::train {

TaskRunner::TaskRunner(const config::Job& job, const StrategyParts& parts)
    : job_(job), parts_(parts), gradient_(parts.work->layout().block_elements()) {}

double TaskRunner::lr_of(int64_t step) const {
  return optim::learning_rate(job_.optimizer, step, parts_.lanes->total_steps());
}

void TaskRunner::take_frozen() {
  const auto weights = std::as_const(*parts_.arena).weights().subspan(gradient_.size());
  std::ranges::copy(weights, parts_.work->weights().subspan(gradient_.size()).begin());
}

Result<ps::TaskResult> TaskRunner::run(const TaskRows::Task& task) {
  const int64_t step = step_of(task.number);
  const int lane = lane_of(task.number);
  if (parts_.lanes->samples_of(step, {&lane, 1}) == 0) {
    return ps::TaskResult{};  // the last step of a job may be short
  }
  MUSTER_RETURN_IF_ERROR(parts_.tasks->fetch(parts_.work->weights().first(gradient_.size())));
  parts_.sum->begin(GradientSum::Mode::kNative, parts_.work->exponents(), {&lane, 1}, step);
  parts_.lanes->take_mean_over({lane});
  auto computed = parts_.lanes->run(step, {&lane, 1}, [] { return false; });
  if (!computed.ok()) {
    parts_.sum->abandon();
    return std::move(computed).error();
  }
  parts_.sum->flush();
  const LaneResult& lane_result = parts_.lanes->result(lane);
  LaneResult checked = lane_result;
  checked.not_finite = parts_.sum->not_finite(lane);
  if (!checked.finite()) {
    return parts_.lanes->explain_not_finite(step, lane, checked,
                                            parts_.work->tensor_name(checked.not_finite),
                                            /*may_skip=*/false);
  }
  read_gradient();
  clip();
  const auto read = std::as_const(*parts_.work).weights().first(gradient_.size());
  MUSTER_RETURN_IF_ERROR(parts_.tasks->push(gradient_, read, lr_of(step)));
  return ps::TaskResult{
      .loss = lane_result.loss, .samples = lane_result.samples, .used = lane_result.used};
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
