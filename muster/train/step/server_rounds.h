// Asynchronous training through parameter servers (sync.strategy: server). Workers take tasks, each
// one lane of one step (with easgd, or sync.push_every, of some), as fast as they can; a push takes
// effect when it comes. With a push of task t computed from weights that were up to date when it
// was taken:
//
//   async     w = w - lr g, after each push. Downpour SGD: Dean et al., "Large scale distributed
//             deep networks", NIPS 2012
//   ssp       the same; task t is not taken before all tasks below t - sync.staleness have taken
//             effect. Ho et al., NIPS 2013; Li et al., OSDI 2014
//   softsync  w = w - lr * mean of g, after sync.pushes of them. Zhang et al., "Staleness-aware
//             async-SGD", arXiv 1511.05950
//   easgd     each lane has weights of its own, and w is their center (easgd_task.h). Zhang et al.,
//             NIPS 2015
//
// With sync.late: scale, g counts by 1 / staleness, the updates since what it was computed from
// (arXiv 1511.05950). With compensate, g + sync.compensation * g * g * (w - what it was computed
// from) takes its place (DC-ASGD: arXiv 1609.08326, ps/staged_pushes.h). g goes through the row's
// optimizer (ps/row_optimizer.h): sgd, adagrad, adam.
//
// A round is sync.period steps. Then all workers have the same weights and commit, as with every
// other strategy; so evaluations, checkpoints, and workers that come, are as ever. Within a round
// a lost worker costs its own task, and those that are under way while the others form a new group.
// If the job is told to stop, or its time is over, the round ends at the next step boundary.
//
// The result is not the same each time. But it follows from the order of pushes and from what they
// were computed from, which is recorded (ps/task_order.h): `muster replay` computes it again, bit
// for bit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "muster/train/step/committer.h"
#include "muster/train/step/strategy.h"
#include "muster/train/step/task_runner.h"

namespace muster::train {

class ServerRounds final : public Strategy {
 public:
  ServerRounds(const config::Job& job, const StrategyParts& parts);

  void assign(std::vector<int> units, comm::Group* group, Duration timeout) override;
  std::vector<int> lanes() const override { return {}; }  // nobody knows which
  void set_vitals(const Vitals* vitals) override;
  Result<StepReport> run(const std::function<CommitFlags()>& flags) override;
  CommitFlags agreed_flags() const override { return committer_.message().flags(); }
  Result<uint64_t> recompute(int lane) override;
  int units_at_once() const override { return 1; }
  double lane_seconds() const override { return lane_seconds_; }
  void show_weights() override;

  std::span<std::byte> bytes() override { return parts_.arena->bytes(); }
  roster::Position position() const override { return position_of(parts_.arena->counters()); }
  bool is_intact() const override { return parts_.arena->counters_are_sealed(); }
  void was_replaced() override { parts_.arena->seal_counters(); }
  // What a commit is about is on the servers.
  bool holds_sums() const override { return false; }
  std::span<const uint8_t> message_bytes() const override { return committer_.message().bytes(); }
  std::optional<roster::Position> message_of() const override { return std::nullopt; }
  Result<bool> apply_message(std::span<const uint8_t> message) override;
  void forget() override {}

 private:
  int64_t tasks_of(int64_t steps) const;
  Status check_whole_tasks() const;
  Status begin_round(int64_t first, int64_t end);
  Status run_tasks(const std::function<CommitFlags()>& flags);
  Status cut_if_due(const std::function<CommitFlags()>& flags);
  Result<std::optional<TaskRows::Task>> wait_for_task(const ps::TaskResult* done,
                                                      const std::function<CommitFlags()>& flags);
  Result<StepReport> finish(const std::vector<ps::TaskResult>& results, int64_t steps);

  const config::Job& job_;
  StrategyParts parts_;
  const std::unique_ptr<TaskRunner> runner_;
  std::unique_ptr<comm::Group> alone_;
  comm::Group* group_;
  Duration timeout_ = std::chrono::seconds(60);  // of an operation of the group
  Committer committer_;
  std::vector<float> weights_;  // after the round
  double lane_seconds_ = 0;
  bool cut_ = false;  // the round was to end early
  const Vitals* vitals_ = &kNoVitals;
};

}  // namespace muster::train
