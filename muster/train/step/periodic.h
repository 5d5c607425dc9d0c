// Periodic strategies: replicas train by themselves for a round of several steps, then they are
// merged (sync/recipe.h). What is committed is a round.
//
//   compute   for each replica that this worker has: the round's steps, from the common weights on,
//             by an inner Lockstep that is alone; what it changed is kept
//             the sums of these changes over all replicas, in fixed point, like gradients: first
//             the largest exponent of each block is exchanged, so that the scales fit
//   commit    one small allreduce: losses and samples of all steps and lanes, the scales of the
//             inner sums
//   apply     the outer optimizer changes the common weights
//
// Two arenas. The common one (StrategyParts::arena) is the state of the job: checkpoints, recovery
// and audits see nothing else, and it changes only by a commit. The nets compute with another one
// (StrategyParts::work), which has one replica at a time.
//
// No worker has a state of its own from one round to the next: the inner optimizer's state is
// averaged or begun anew (sync::averages_inner_state), and the replicas of elastic averaging are
// part of the common state. So what a lost worker takes with it is the round under way, which
// others compute again, with the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "muster/comm/group.h"
#include "muster/sync/recipe.h"
#include "muster/train/step/committer.h"
#include "muster/train/step/lockstep.h"
#include "muster/train/step/strategy.h"
#include "muster/train/step/sum_exchange.h"

namespace muster::train {

class Periodic final : public Strategy {
 public:
  static Result<std::unique_ptr<Periodic>> create(const config::Job& job,
                                                  const StrategyParts& parts);

  // Of the common arena: strategy.h.
  static std::vector<std::string> state_names(const config::Job& job,
                                              const optim::Optimizer& inner);

  void assign(std::vector<int> units, comm::Group* group, Duration timeout) override;
  std::vector<int> lanes() const override;
  void set_vitals(const Vitals* vitals) override;
  Result<StepReport> run(const std::function<CommitFlags()>& flags) override;
  CommitFlags agreed_flags() const override { return committer_.message().flags(); }
  // Lanes are not compared with periodic strategies.
  Result<uint64_t> recompute(int lane) override;
  // Replicas are computed one after the other.
  int units_at_once() const override { return 1; }
  double lane_seconds() const override { return replica_seconds_; }
  void show_weights() override;

  std::span<std::byte> bytes() override { return parts_.arena->bytes(); }
  roster::Position position() const override { return position_of(parts_.arena->counters()); }
  bool is_intact() const override { return parts_.arena->counters_are_sealed(); }
  void was_replaced() override;
  bool holds_sums() const override { return holds_sums_; }
  std::span<const uint8_t> message_bytes() const override { return committer_.message().bytes(); }
  std::optional<roster::Position> message_of() const override { return message_of_; }
  Result<bool> apply_message(std::span<const uint8_t> message) override;
  void forget() override;

 private:
  // What a replica of this worker did in the round under way.
  struct Replica {
    bool done = false;
    std::vector<std::vector<float>> changes;  // by buffer of the inner arena: before minus after
    std::vector<LaneResult> results;          // by step of the round and lane of the job
    std::vector<uint8_t> seen;                // the exponents of its inner sums, by block
    double seconds = 0;                       // that it took
  };
  // A sum of changes: of the weights (buffer 0) or of one of the inner optimizer's states, over all
  // replicas or of one only.
  struct Merged {
    size_t buffer = 0;
    int only = -1;
    bool square = false;  // it is never negative
    std::unique_ptr<GradientSum> sum;
    std::vector<uint8_t> exponents;  // of the sum under way, by block
  };

  Periodic(const config::Job& job, const StrategyParts& parts,
           std::unique_ptr<optim::Optimizer> outer);

  int64_t round_length() const;
  std::vector<int> adding(const Merged& merged) const;
  std::span<float> common(size_t buffer);
  // Of elastic averaging: how far the weights of a replica are from the common ones.
  std::span<float> distance(int number);
  std::span<float> working(size_t buffer);
  Replica& replica(int number) { return all_[static_cast<size_t>(number)]; }

  Status compute();
  void begin_replica(int number);
  Status run_replica(int number, int64_t length);
  Status run_step(Replica& replica, const std::vector<int>& lanes, int64_t step);
  void finish_replica(int number);
  void add_changes(Merged& merged);
  Status agree_on_scales();
  Status sum_changes();
  Status commit(const CommitFlags& flags);
  Result<StepReport> apply();
  Error not_finite_error(int record);
  void merge_weights(size_t block, std::span<float> scratch);
  void merge_elastic(size_t block, std::span<float> scratch);
  void merge_state(const Merged& merged, size_t block, std::span<float> scratch);
  void note_speed(int64_t length);

  const config::Job& job_;
  const config::Job inner_job_;  // of a replica: lockstep, alone, without audits
  StrategyParts parts_;
  const int lanes_;
  const sync::Recipe recipe_;
  const bool averages_;  // the inner optimizer's state
  const std::unique_ptr<optim::Optimizer> outer_;
  Auditor inner_auditor_;
  Lockstep inner_;
  std::vector<Merged> merged_;               // first those of the weights
  SumExchange exchange_;                     // of one after the other
  std::vector<std::vector<float>> scratch_;  // by thread, one block each

  std::vector<int> replicas_;  // of this worker
  std::unique_ptr<comm::Group> alone_;
  comm::Group* group_;
  Duration timeout_ = std::chrono::seconds(60);
  // What has been computed since position computed_at_. It stays if the group fails: bits do not
  // depend on the group, so in the next one only what is missing is computed.
  std::vector<Replica> all_;  // by number
  std::optional<roster::Position> computed_at_;
  int under_way_ = -1;      // the replica that the working arena has
  int64_t steps_done_ = 0;  // of its round
  Committer committer_;
  std::optional<roster::Position> message_of_;
  bool holds_sums_ = false;
  double replica_seconds_ = 0;
  const Vitals* vitals_ = &kNoVitals;
};

}  // namespace muster::train
