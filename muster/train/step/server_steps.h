// Synchronous training through parameter servers (sync.strategy: server with sync.mode: sync). The
// optimizer and its state are on the servers; a worker has the weights, and computes gradients. In
// each step, with the n_l samples of lane l and the n of all lanes:
//
//   g = sum over the lanes of n_l / n * gradient of the lane's mean loss
//   w = w changed by the row's optimizer (ps/row_optimizer.h: sgd, adagrad, adam) with g
//
// which is the gradient of the mean loss over the batch, as in lockstep. A lane's part is pushed by
// itself, and added exactly (ps/step_sums.h), each lane once. So the bits do not depend on who
// computes a lane, how often, or where rows are. What differs from lockstep: the rounding of g, and
// the traffic, which is all weights to each worker and the gradient of each lane to the servers.
//
//   compute   this worker's lanes; the thread that has a lane pushes its gradient. All is with the
//             servers when that ends, and nothing has changed there
//   commit    one small allreduce (commit.h): is everything finite, losses
//   apply     the step counts as done, but its weights are still to come
//   publish   all know of the commit (a barrier), so rank 0 tells the servers, and every worker
//             reads the weights
//
// Positions. A worker may be lost between any two of these, so the state has one position after
// apply, (step, 0), and another after publish, (step, 1). (The beginning of a job, (0, 0), has its
// weights.) Either way on is a commit that others can roll forward (roster/agree.h): whoever has
// pushed its lanes applies a message that it missed; and whoever has applied it reads the weights,
// if another worker has, because then the servers know of the step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "muster/train/rows/sync_weights.h"
#include "muster/train/step/committer.h"
#include "muster/train/step/strategy.h"

namespace muster::train {

class ServerSteps final : public Strategy {
 public:
  ServerSteps(const config::Job& job, const StrategyParts& parts);

  void assign(std::vector<int> units, comm::Group* group, Duration timeout) override;
  std::vector<int> lanes() const override { return own_lanes_; }
  void set_vitals(const Vitals* vitals) override;
  Result<StepReport> run(const std::function<CommitFlags()>& flags) override;
  Status publish_rows() override;
  bool is_complete() const override;
  CommitFlags agreed_flags() const override { return committer_.message().flags(); }
  Result<uint64_t> recompute(int lane) override;
  int units_at_once() const override { return parts_.team->threads(); }
  double lane_seconds() const override { return lane_seconds_; }
  void show_weights() override {}  // the nets have them

  std::span<std::byte> bytes() override { return parts_.arena->bytes(); }
  roster::Position position() const override { return position_of(parts_.arena->counters()); }
  bool is_intact() const override { return parts_.arena->counters_are_sealed(); }
  void was_replaced() override { parts_.arena->seal_counters(); }
  bool holds_sums() const override { return holds_sums_; }  // the servers do
  std::span<const uint8_t> message_bytes() const override { return committer_.message().bytes(); }
  std::optional<roster::Position> message_of() const override { return message_of_; }
  Result<bool> apply_message(std::span<const uint8_t> message) override;
  void forget() override;

 private:
  Status compute();
  void begin_lane(int member, int64_t step, int lane);
  Status end_lane(int member, int64_t step, int lane, LaneResult& result);
  Status commit(const CommitFlags& flags);
  Result<StepReport> apply();
  Status take_weights();
  double lr_of(int64_t step) const;

  const config::Job& job_;
  StrategyParts parts_;
  std::vector<int> own_lanes_;
  std::unique_ptr<comm::Group> alone_;
  comm::Group* group_;
  Duration timeout_ = std::chrono::seconds(60);  // of an operation of the group
  Committer committer_;
  std::optional<roster::Position> message_of_;
  bool holds_sums_ = false;
  std::vector<std::vector<float>> gradients_;  // of a lane, by member of the team
  std::vector<float> weights_;                 // as they were read
  double lane_seconds_ = 0;
  const Vitals* vitals_ = &kNoVitals;
};

}  // namespace muster::train
