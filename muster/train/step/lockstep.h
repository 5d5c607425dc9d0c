// Lockstep, the synchronous strategy: in each step the gradients of all lanes are summed over all
// workers, and all workers make the same update.
//
//   compute   this worker's lanes (lane_runner.h), gradients into the GradientSum; its buckets are
//             summed over the workers meanwhile
//             now and then also a lane of a peer, to compare the results (audit.h)
//   commit    one small allreduce (commit.h): did a scale overflow, is everything finite, losses
//   apply     the step is done: the weights are updated (updater.h). Or the scales are mended and
//             the step is computed again: the very first time of all, which only looks at
//             magnitudes, and after an overflow. Or damaged blocks of the data are noted, and it is
//             computed again without them (data.on_damage: replace)
//
// Everything that decides what is computed is in the arena: the step, the attempt, the exponents
// and the damaged blocks. compute() and commit() do not change it. apply() does, and depends on
// nothing but the arena, the full sums and the message: so a worker that missed the commit, but had
// all sums, can apply the message later and has the same bits.
//
// Between the phases the team is at a barrier (Team::run returns), which is what lets lanes read
// the weights and blocks change them without any lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "muster/comm/group.h"
#include "muster/train/step/committer.h"
#include "muster/train/step/few_bits.h"
#include "muster/train/step/strategy.h"
#include "muster/train/step/sum_exchange.h"
#include "muster/train/step/updater.h"

namespace muster::train {

class Lockstep final : public Strategy {
 public:
  Lockstep(const config::Job& job, const StrategyParts& parts);

  void assign(std::vector<int> units, comm::Group* group, Duration timeout) override;
  std::vector<int> lanes() const override { return own_lanes_; }
  void set_vitals(const Vitals* vitals) override;
  Result<StepReport> run(const std::function<CommitFlags()>& flags) override;
  Status publish_rows() override;
  CommitFlags agreed_flags() const override { return committer_.message().flags(); }
  Result<uint64_t> recompute(int lane) override;
  int units_at_once() const override;
  double lane_seconds() const override { return lane_seconds_; }
  void show_weights() override {}  // the nets have them

  std::span<std::byte> bytes() override { return parts_.arena->bytes(); }
  roster::Position position() const override { return position_of(parts_.arena->counters()); }
  bool is_intact() const override { return parts_.arena->counters_are_sealed(); }
  void was_replaced() override { parts_.arena->seal_counters(); }
  bool holds_sums() const override { return holds_sums_; }
  std::span<const uint8_t> message_bytes() const override { return committer_.message().bytes(); }
  std::optional<roster::Position> message_of() const override { return message_of_; }
  Result<bool> apply_message(std::span<const uint8_t> message) override;
  void forget() override;

  // Other lanes than those of its units.
  void set_lanes(std::vector<int> lanes) { own_lanes_ = std::move(lanes); }
  // The optimizer's state has been zero since the job had that many updates.
  void begin_optimizer_at(int64_t updates) { first_update_ = updates; }

  // Of the last commit.
  LaneResult agreed_result(int lane) const { return committer_.message().lane(lane); }

  // The parts of run(). After a successful compute() the sums are full: holds_sums().
  Status compute();
  Status commit(const CommitFlags& flags);
  // With the message of the last commit. Nothing if the step has to be computed again.
  Result<std::optional<StepReport>> apply();

 private:
  GradientSum::Mode mode() const;
  Status run_lanes();
  Status finish_sums();
  uint64_t lane_hash(int lane, uint64_t gradient) const;
  Status compare_lanes();
  Error not_finite_error(int lane);
  Status note_damage(std::span<const uint64_t> found);
  bool mend_scales();
  void decline_scales();
  void finish_step(StepReport& report);
  int64_t fewest_gradient_bits() const;
  void note_speed(double update_seconds);

  const config::Job& job_;
  StrategyParts parts_;
  const int lanes_;
  std::unique_ptr<FewBits> few_;  // if sync.bits is below 32
  SumExchange exchange_;
  Updater updater_;
  std::vector<int> own_lanes_;
  std::vector<int> to_compute_;  // those, and a peer's if it is to be compared
  std::unique_ptr<comm::Group> alone_;
  comm::Group* group_;
  Duration timeout_ = std::chrono::seconds(60);  // of an operation of the group
  Committer committer_;
  std::optional<roster::Position> message_of_;
  bool holds_sums_ = false;
  int64_t first_update_ = 0;
  double lane_seconds_ = 0;
  const Vitals* vitals_ = &kNoVitals;
};

}  // namespace muster::train
