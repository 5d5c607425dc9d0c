// Computes one task of asynchronous training: one lane of one step, with weights and rows as they
// are now, and its gradient to where they come from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "muster/config/job.h"
#include "muster/train/rows/task_rows.h"
#include "muster/train/step/strategy.h"

namespace muster::train {

class TaskRunner {
 public:
  // All must outlive it.
  TaskRunner(const config::Job& job, const StrategyParts& parts);

  // Weights that never change are on no server: from the state, before the first task of a round.
  void take_frozen();
  // The task that TaskRows has begun. An error if something is not finite: it has no effect then.
  Result<ps::TaskResult> run(const TaskRows::Task& task);
  // Which step, and which lane.
  int64_t step_of(int64_t task) const { return task / job_.lanes; }
  int lane_of(int64_t task) const { return static_cast<int>(task % job_.lanes); }
  double lr_of(int64_t step) const;

 private:
  void read_gradient();
  void clip();

  const config::Job& job_;
  StrategyParts parts_;
  std::vector<float> gradient_;
};

}  // namespace muster::train
