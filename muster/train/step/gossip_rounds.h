// The rounds of gossip (sync/recipe.h): each replica is merged with one other, which a random
// permutation that all workers know gives it.
//
// Only the two workers of a pair send weights to each other, however many there are; except that in
// a group in which not all can (topology.h), those that cannot send to everybody.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "muster/sync/recipe.h"
#include "muster/train/step/round_exchange.h"

namespace muster::train {

class GossipRounds final : public RoundExchange {
 public:
  GossipRounds(const config::Job& job, const StrategyParts& parts, size_t first_kept);

  Status begin(const Peers& peers) override;
  std::span<const float> weights(int replica) const override { return of(replica).weights; }
  void take(int replica, std::span<const float> after) override;
  Result<bool> exchange(int64_t round, const Peers& peers) override;
  std::span<const float> kept(size_t buffer, int replica) const override;
  void apply(size_t block) override;

 private:
  struct Replica {
    std::vector<float> weights;  // at the beginning of the round
    // At its end. Once they have been exchanged: how far the new weights are from those of the
    // state of the job.
    std::vector<float> after;
    std::vector<float> momentum;
  };
  const Replica& of(int replica) const { return own_[static_cast<size_t>(replica)]; }
  bool is_own(int replica) const { return !of(replica).weights.empty(); }
  Status exchange_pair(sync::Pair pair, const Peers& peers);
  Status exchange_parts(sync::Pair pair, const Peers& peers);
  // `a` and `b`: what the two had at the end of the round.
  void merge(int replica, std::span<const float> a, std::span<const float> b);
  // In the arena.
  std::span<float> state(size_t buffer, size_t replica);

  const config::Job& job_;
  StrategyParts parts_;
  const size_t first_kept_;
  const sync::Recipe recipe_;
  const size_t size_;                       // of a buffer
  std::vector<Replica> own_;                // by number; empty if it is another worker's
  std::vector<int32_t> owners_;             // by number: rank
  std::array<std::vector<float>, 2> told_;  // what a pair had at the end of the round
};

}  // namespace muster::train
