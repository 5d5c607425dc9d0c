// What replicas tell each other at the end of a round that is not committed.
//
// With some strategies a replica has something of its own from one round to the next: what it has
// not sent yet (sparseloco, topk and others), weights of its own (gossip, streaming, sparta), or
// the optimizer's state (desloc, and all of these). To send that to all workers in every round
// would be more than everything else they send. So several
// rounds (sync.rounds) are committed together: at the end of the last one all workers get what each
// replica keeps (replica_sums.h), as part of the state of the job. If a worker is lost before, all
// begin again with the last commit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "muster/comm/group.h"
#include "muster/train/step/replica_sums.h"
#include "muster/train/step/strategy.h"

namespace muster::train {

// The state of the job is that of an arena (StrategyParts::arena), of which this changes nothing
// but in apply(). Buffers of weights have all blocks of its layout. One thread calls it.
class RoundExchange {
 public:
  virtual ~RoundExchange() = default;

  // With whom a worker makes an exchange.
  struct Peers {
    std::span<const int> replicas;  // of this worker
    comm::Group& group;
    Duration timeout;
    const Vitals& vitals;
    bool finite = true;  // false: this worker has seen a loss or gradient that ends the job
    bool last = false;   // a commit follows: nothing may be under way
    bool end = false;    // and the job has no more steps
    int64_t number = 0;  // of the round, since the last commit
    // State `state` of the optimizer of a replica of this worker, between rounds.
    // NOLINTNEXTLINE(readability-redundant-member-init): or who leaves it out is warned by GCC
    std::function<std::span<float>(size_t state, int replica)> states = {};
    bool owns(int replica) const { return std::ranges::find(replicas, replica) != replicas.end(); }
  };

  // Whether all replicas compute with what it has put into the working arena (StrategyParts::work),
  // weights and optimizer state; else each begins with weights().
  virtual bool in_place() const { return false; }
  // Waits for what it may have under way with others, and forgets it.
  virtual void cancel() {}
  // Collective. Begins with the state of the job.
  virtual Status begin(const Peers& peers) = 0;
  // With which a replica of this worker begins its next round.
  virtual std::span<const float> weights(int replica) const = 0;
  // It has these at the end of the round.
  virtual void take(int replica, std::span<const float> after) = 0;
  // Collective: all replicas of all workers are there. `round`: of the job. False: some value is
  // not finite, or a worker has said so (Peers::finite), which all workers learn.
  virtual Result<bool> exchange(int64_t round, const Peers& peers) = 0;

  // What a replica of this worker keeps: sync::kept_by_replicas() buffers.
  virtual std::span<const float> kept(size_t buffer, int replica) const = 0;
  // The new state of the job, for one block; what replicas keep is there. May run on several
  // threads.
  virtual void apply(size_t block) = 0;
};

// Collective. False: `finite` is false on some worker; all workers learn that. `common`: the hash
// of what all workers should have in common. If it differs, an error: either the state of one of
// them has been damaged, which an audit finds, or what it has computed since the last commit, with
// which all begin again. `auditor` may be null.
Result<bool> agree(bool finite, uint64_t common, Auditor* auditor,
                   const RoundExchange::Peers& peers);
// The same, when it is known that it differs.
Error explain_difference(Auditor* auditor, const RoundExchange::Peers& peers);

// That of the job's strategy; nullptr if it commits each round. `first_kept`: in the arena,
// which of the optimizer's states is buffer 0 of replica 0.
std::unique_ptr<RoundExchange> make_round_exchange(const config::Job& job,
                                                   const StrategyParts& parts, size_t first_kept);

}  // namespace muster::train
