#include "muster/train/step/replica_runner.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "muster/base/check.h"
#include "muster/sync/recipe.h"

namespace muster::train {
namespace {

config::Job inner_job(config::Job job) {
  const std::string strategy = job.sync.strategy;
  job.sync = {};
  job.audit.every = 0;
  job.audit.lanes = 0;
  // Whether the job goes on is decided by all workers together, when the round is committed.
  job.not_finite = "skip";
  // A gradient that is sent is clipped when those of all replicas have been added up.
  if (sync::sends_gradients(strategy)) job.optimizer.clip = {};
  return job;
}

// Copies gradients into a state, and changes no weights.
class GradientTap final : public optim::Optimizer {
 public:
  explicit GradientTap(size_t state) : Optimizer({}), state_(state) {}
  std::vector<std::string> state_names() const override { return {}; }

 protected:
  void update_weights(const optim::BlockView& block, const optim::TensorInfo&,
                      const optim::StepScalars&, const optim::Norms&, Isa) const override {
    std::ranges::copy(block.gradient, block.states[state_]);
  }

 private:
  const size_t state_;
};

std::unique_ptr<optim::Optimizer> make_tap(const config::Job& job, const Arena& work) {
  if (!sync::sends_gradients(job.sync.strategy)) return nullptr;
  return std::make_unique<GradientTap>(work.optimizer_states() - 1);
}

}  // namespace

ReplicaRunner::ReplicaRunner(const config::Job& job, const StrategyParts& parts)
    : job_(job),
      inner_job_(inner_job(job)),
      parts_(parts),
      tap_(make_tap(job, *parts.work)),
      auditor_(inner_job_, *parts.work),
      lockstep_(inner_job_, {.arena = parts.work,
                             .sum = parts.sum,
                             .team = parts.team,
                             .lanes = parts.lanes,
                             .optimizer = inner_optimizer(),
                             .auditor = &auditor_,
                             .memory = parts.memory}) {}

void ReplicaRunner::begin(int number, int64_t step, int64_t optimizer_begin) {
  parts_.work->counters() = parts_.arena->counters();
  parts_.work->counters().step = step;
  parts_.work->seal_counters();
  lockstep_.forget();
  lockstep_.begin_optimizer_at(optimizer_begin);
  under_way_ = number;
  next_ = step;
}

Status ReplicaRunner::run_to(int64_t end, int64_t first, const comm::Group& group, Duration timeout,
                             Record& record) {
  MUSTER_CHECK(under_way_ >= 0, "no replica has begun");
  const auto lanes = sync::lanes_of(job_, {&under_way_, 1});
  lockstep_.assign(lanes, nullptr, timeout);
  parts_.lanes->take_mean_over(lanes);
  for (; next_ < end; ++next_) {
    // A round is long: whoever is lost meanwhile must be replaced soon.
    if (group.failed()) return Error(ErrorKind::kInternal, "the group failed during the round");
    // A short last step may have no samples for this replica; then it stays as it is.
    if (parts_.lanes->samples_of_mean(next_) == 0) {
      if (tap_ != nullptr) {
        std::ranges::fill(parts_.work->optimizer_state(parts_.work->optimizer_states() - 1), 0.0f);
      }
      continue;
    }
    const auto begin = std::chrono::steady_clock::now();
    MUSTER_RETURN_IF_ERROR(run_step(lanes, (next_ - first) * job_.lanes, record));
    record.seconds += seconds(std::chrono::steady_clock::now() - begin);
  }
  under_way_ = -1;
  return {};
}

Status ReplicaRunner::run_step(const std::vector<int>& lanes, int64_t at, Record& record) {
  while (true) {
    MUSTER_RETURN_IF_ERROR(lockstep_.compute());
    for (const int lane : lanes) {
      auto result = parts_.lanes->result(lane);
      result.not_finite = parts_.sum->not_finite(lane);
      record.results[static_cast<size_t>(at + lane)] = result;
    }
    MUSTER_RETURN_IF_ERROR(lockstep_.commit({}));
    MUSTER_TRY(const auto report, lockstep_.apply());
    if (report) return {};
  }
}

}  // namespace muster::train
