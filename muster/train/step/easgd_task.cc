#include "muster/train/step/easgd_task.h"

#include <algorithm>
#include <cmath>

#include "muster/config/rounds.h"
#include "muster/sync/recipe.h"

namespace muster::train {

EasgdTask::EasgdTask(const config::Job& job, const StrategyParts& parts)
    : TaskRunner(job, parts),
      size_(weights().size()),
      rate_(static_cast<float>(sync::recipe_of(job.sync).lr / static_cast<double>(job.lanes))),
      momentum_(static_cast<float>(job.optimizer.momentum)),
      values_((momentum_ > 0 ? 3 : 2) * size_),
      changes_(values_.size()),
      center_(std::span(values_).first(size_)),
      replica_(std::span(values_).subspan(size_, size_)),
      velocity_(std::span(values_).subspan(2 * size_)) {}

Result<ps::TaskResult> EasgdTask::run(const TaskRows::Task& task) {
  const int64_t steps = config::steps_of_task(job().sync);
  const int64_t first = task.number / job().lanes * steps;
  const int lane = static_cast<int>(task.number % job().lanes);
  ps::TaskResult result;
  if (!has_samples(first, lane)) return result;
  const auto vectors = vectors_of(lane);
  MUSTER_RETURN_IF_ERROR(parts().tasks->fetch_vectors(vectors, values_));
  std::ranges::copy(values_, changes_.begin());
  for (int64_t step = first; step < first + steps && has_samples(step, lane); ++step) {
    look_ahead();
    MUSTER_TRY(const LaneResult computed, compute(step, lane));
    if (step == first) move();
    train(lr_of(step));
    add(computed, result);
  }
  result.loss /= static_cast<double>(result.samples);
  MUSTER_RETURN_IF_ERROR(take_changes(first, lane));
  MUSTER_RETURN_IF_ERROR(parts().tasks->push_vectors(vectors, changes_, /*read=*/{}, /*lr=*/1));
  return result;
}

std::vector<uint64_t> EasgdTask::vectors_of(int replica) const {
  const TaskRows& tasks = *parts().tasks;
  std::vector<uint64_t> vectors = {TaskRows::kParameters, tasks.replica_weights(replica)};
  if (!velocity_.empty()) vectors.push_back(tasks.replica_velocity(replica));
  return vectors;
}

void EasgdTask::look_ahead() {
  std::ranges::copy(replica_, weights().begin());
  for (size_t i = 0; i < velocity_.size(); ++i) weights()[i] += momentum_ * velocity_[i];
}

void EasgdTask::move() {
  for (size_t i = 0; i < size_; ++i) {
    const float drawn = rate_ * (replica_[i] - center_[i]);
    replica_[i] -= drawn;
    changes_[i] = -drawn;
  }
}

void EasgdTask::train(double lr) {
  const auto rate = static_cast<float>(lr);
  const auto g = gradient();
  if (velocity_.empty()) {
    for (size_t i = 0; i < size_; ++i) replica_[i] -= rate * g[i];
    return;
  }
  for (size_t i = 0; i < size_; ++i) {
    velocity_[i] = momentum_ * velocity_[i] - rate * g[i];
    replica_[i] += velocity_[i];
  }
}

Status EasgdTask::take_changes(int64_t step, int lane) {
  bool finite = true;
  for (size_t i = size_; i < values_.size(); ++i) changes_[i] -= values_[i];
  for (const float change : changes_) finite = finite && std::isfinite(change);
  if (finite) return {};
  return Error(ErrorKind::kNumerics,
               "steps from {} on, lane {}: the weights of this replica are not finite any more. "
               "Lower optimizer.lr, or clip gradients (optimizer.clip.norm)",
               step, lane);
}

}  // namespace muster::train
