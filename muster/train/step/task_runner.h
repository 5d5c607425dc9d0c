// Computes the tasks of asynchronous training, with weights and rows as they are now, and pushes
// the results. What a task is depends on sync.mode:
//
//   async, ssp, softsync   one lane of sync.push_every steps, and the push is the sum of its
//                          gradients
//   easgd                  one lane of sync.fetch steps (easgd_task.h)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "muster/config/job.h"
#include "muster/train/rows/task_rows.h"
#include "muster/train/step/strategy.h"

namespace muster::train {

class TaskRunner {
 public:
  virtual ~TaskRunner() = default;

  // The task that TaskRows has begun. An error if something is not finite: it has no effect then.
  virtual Result<ps::TaskResult> run(const TaskRows::Task& task) = 0;

  // Weights that never change are on no server: from the state, before the first task of a round.
  void take_frozen();
  double lr_of(int64_t step) const;

 protected:
  // All must outlive it.
  TaskRunner(const config::Job& job, const StrategyParts& parts);

  const config::Job& job() const { return job_; }
  const StrategyParts& parts() const { return parts_; }
  // The parameters that are trained, which compute() uses.
  std::span<float> weights() { return parts_.work->weights().first(gradient_.size()); }
  // Whether the lane has samples in this step: the last one of a job may be short.
  bool has_samples(int64_t step, int lane) const;
  // Forward and backward of one lane; gradient() is the mean over its samples, clipped.
  Result<LaneResult> compute(int64_t step, int lane);
  std::span<const float> gradient() const { return gradient_; }
  // Of a task of several steps: `loss` is a sum over its samples until it is divided by them.
  static void add(const LaneResult& step, ps::TaskResult& task);

 private:
  void read_gradient();
  void clip();

  const config::Job& job_;
  StrategyParts parts_;
  std::vector<float> gradient_;
};

// Of the job's sync.mode. Both must outlive it.
std::unique_ptr<TaskRunner> make_task_runner(const config::Job& job, const StrategyParts& parts);

}  // namespace muster::train
