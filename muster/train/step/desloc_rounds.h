// The rounds of desloc (sync/recipe.h): after each one the weights become the mean of the
// replicas'; half way to the next commit the optimizer's first moments do too. The commit itself
// takes the mean of all of its state.
//
// All workers have the same weights after every round.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "muster/train/step/replica_sums.h"
#include "muster/train/step/round_exchange.h"

namespace muster::train {

class DeslocRounds final : public RoundExchange {
 public:
  DeslocRounds(const config::Job& job, const StrategyParts& parts);

  Status begin(const Peers& peers) override;
  std::span<const float> weights(int) const override { return weights_; }
  void take(int replica, std::span<const float> after) override;
  Result<bool> exchange(int64_t round, const Peers& peers) override;
  std::span<const float> kept(size_t, int) const override { return {}; }
  void apply(size_t block) override;

 private:
  Result<bool> average_weights(int64_t round, const Peers& peers);
  Result<bool> average_moments(int64_t round, const Peers& peers);

  StrategyParts parts_;
  const int64_t half_;  // after so many rounds since the last commit
  const float share_;   // 1/R
  std::vector<float> weights_;
  std::vector<std::vector<float>> changes_;  // by replica: of this worker's, in the round
  ReplicaSums sums_;                         // of changes
  std::vector<size_t> moments_;              // which of the optimizer's states are first moments
  ReplicaSums moment_sums_;                  // in their order
  std::vector<float> moment_;                // what a replica has changed of one, since the commit
};

}  // namespace muster::train
