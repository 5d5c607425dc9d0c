// Periodic strategies: replicas train by themselves for a round of several steps, then they are
// merged (sync/recipe.h). What is committed is a round, or several (sync.rounds).
//
//   compute   for each replica that this worker has: the round's steps (replica_runner.h); what it
//             changed is kept
//             with some strategies: an exchange, and further rounds (round_exchange.h)
//             the sums, over all replicas, of what they changed or keep (replica_sums.h)
//   commit    one small allreduce: losses and samples of all steps and lanes, the scales of the
//             inner sums
//   apply     the outer optimizer, or what the strategy has instead, changes the common weights
//
// Two arenas. The common one (StrategyParts::arena) is the state of the job: checkpoints, recovery
// and audits see nothing else, and it changes only by a commit. The nets compute with another one
// (StrategyParts::work), which has one replica at a time.
//
// No worker has a state of its own from one commit to the next: the inner optimizer's state is
// averaged or begun anew (sync::averages_inner_state), or the same for all replicas, and what
// replicas keep is part of the common state. So what a lost worker takes with it is what has been
// computed since the last commit, which others compute again, with the same bits.
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
#include "muster/train/step/radial_mean.h"
#include "muster/train/step/replica_runner.h"
#include "muster/train/step/replica_sums.h"
#include "muster/train/step/round_exchange.h"
#include "muster/train/step/strategy.h"

namespace muster::train {

class Periodic final : public Strategy {
 public:
  Periodic(const config::Job& job, const StrategyParts& parts);

  // Of the common arena: strategy.h.
  static std::vector<std::string> state_names(const config::Job& job,
                                              const optim::Optimizer& inner);

  void assign(std::vector<int> units, comm::Group* group, Duration timeout) override;
  void join_site(comm::Group& site, std::vector<int> units) override;
  std::vector<int> lanes() const override;
  int workers_of_replica() const { return runner_.site_size(); }
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
  // What a replica of this worker did since the last commit.
  struct Replica {
    bool done = false;  // with the round under way
    ReplicaRunner::Record record;
    std::vector<uint8_t> seen;  // the exponents of its inner sums, by block
    // By buffer of the inner arena: what changed since the last commit, before minus after. Between
    // rounds: the optimizer's states themselves.
    std::vector<std::vector<float>> changes;
  };

  // Steps from the last commit to the next one.
  int64_t commit_length() const;
  // The first step of the round under way, and of the next one.
  int64_t round_begin() const;
  int64_t round_end() const;
  bool is_last_round() const;  // before the commit
  std::span<float> common(size_t buffer);
  // Of elastic averaging: how far the weights of a replica are from the common ones.
  std::span<float> distance(int number);
  std::span<float> working(size_t buffer);
  Replica& replica(int number) { return all_[static_cast<size_t>(number)]; }
  RoundExchange::Peers peers();
  // Whether all replicas compute with what the exchange has put into the working arena.
  bool in_place() const { return exchange_ != nullptr && exchange_->in_place(); }

  void add_sums();
  Result<StepReport> run_rounds(const std::function<CommitFlags()>& flags);
  // False: some value is not finite, which all workers know.
  Result<bool> compute();
  Status begin_commit();
  Status run_replicas();
  void begin_replica(int number);
  // Puts its weights and optimizer state into the working arena.
  void load(int number);
  void finish_replica(int number);
  Result<bool> sum_up();
  Error explain_not_finite();
  Status commit(const CommitFlags& flags);
  Result<StepReport> apply();
  void add_up_losses(StepReport& report, uint64_t& ledger) const;
  Error not_finite_error(int record);
  void merge(size_t block, std::span<float> scratch);
  void take_over_kept(size_t block, std::span<float> scratch);
  void merge_weights(size_t block, std::span<float> scratch);
  void merge_elastic(size_t block, std::span<float> scratch);
  void merge_states(size_t block, std::span<float> scratch);
  void note_speed();

  const config::Job& job_;
  StrategyParts parts_;
  const int lanes_;
  const sync::Recipe recipe_;
  const bool averages_;  // the inner optimizer's state
  ReplicaRunner runner_;
  ReplicaSums sums_;
  // The first of those of what replicas keep. Before them are those of the weights; after them, if
  // they are averaged, of the inner optimizer's states.
  size_t first_kept_sum_ = 0;
  size_t first_state_sum_ = 0;
  std::vector<bool> square_;                 // by state of the inner optimizer: never negative
  const int64_t period_;                     // steps of a round
  const size_t first_kept_state_;            // in the arena: the first that a replica keeps
  std::unique_ptr<RoundExchange> exchange_;  // may be null
  std::unique_ptr<RadialMean> radial_;       // may be null
  std::vector<std::vector<float>> scratch_;  // by thread, one block each

  std::vector<int> replicas_;  // of this worker; of a site its leader has them all
  std::vector<int> computed_;  // by this worker: the same, or those of its site

  std::unique_ptr<comm::Group> alone_;
  comm::Group* group_;
  Duration timeout_ = std::chrono::seconds(60);
  // What has been computed since position computed_at_. If the group fails it stays, unless the
  // strategy has an exchange: bits do not depend on the group, so in the next one only what is
  // missing is computed.
  std::vector<Replica> all_;  // by number
  std::optional<roster::Position> computed_at_;
  int64_t round_ = 0;  // the one under way, since the last commit
  Committer committer_;
  std::optional<roster::Position> message_of_;
  bool holds_sums_ = false;
  double replica_seconds_ = 0;
  const Vitals* vitals_ = &kNoVitals;
};

}  // namespace muster::train
