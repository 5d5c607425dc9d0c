// Rounds for most of the job (sync.local), then lockstep: rounds are fast on slow links, and the
// last steps in lockstep regain what they cost in accuracy.
//
// Both phases have the same state: the weights, and the optimizer's state, of which the rounds take
// the mean. The nets compute with the working arena in both, so in lockstep the new weights are
// copied there in each step.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "muster/train/step/lockstep.h"
#include "muster/train/step/periodic.h"
#include "muster/train/step/strategy.h"

namespace muster::train {

class LocalThenLockstep final : public Strategy {
 public:
  LocalThenLockstep(const config::Job& job, const StrategyParts& parts);

  void assign(std::vector<int> units, comm::Group* group, Duration timeout) override;
  void join_site(comm::Group& site, std::vector<int> units) override;
  std::vector<int> lanes() const override { return local_.lanes(); }
  void set_vitals(const Vitals* vitals) override;
  Result<StepReport> run(const std::function<CommitFlags()>& flags) override;
  CommitFlags agreed_flags() const override { return last().agreed_flags(); }
  Result<uint64_t> recompute(int lane) override { return next().recompute(lane); }
  int units_at_once() const override { return 1; }
  double lane_seconds() const override;
  void show_weights() override { local_.show_weights(); }

  std::span<std::byte> bytes() override { return parts_.arena->bytes(); }
  roster::Position position() const override { return local_.position(); }
  bool is_intact() const override { return local_.is_intact(); }
  void was_replaced() override;
  // At most one of them does.
  bool holds_sums() const override { return local_.holds_sums() || lockstep_.holds_sums(); }
  std::span<const uint8_t> message_bytes() const override;
  std::optional<roster::Position> message_of() const override;
  Result<bool> apply_message(std::span<const uint8_t> message) override;
  void forget() override;

 private:
  bool next_is_local() const;
  bool last_was_local() const;
  // The phase of the next step, and that of the last commit of which there is a message.
  Strategy& next() { return next_is_local() ? static_cast<Strategy&>(local_) : lockstep_; }
  const Strategy& last() const {
    return last_was_local() ? static_cast<const Strategy&>(local_) : lockstep_;
  }

  const config::Job& job_;
  const config::Job lockstep_job_;
  StrategyParts parts_;
  Periodic local_;
  Lockstep lockstep_;
  // For message_bytes(): with room for that of either phase. If one worker is already in lockstep
  // and another is not, both must expect the same length.
  mutable std::vector<uint8_t> message_;
};

}  // namespace muster::train
