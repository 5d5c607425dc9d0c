// The rounds of sparseloco (sync/recipe.h): each replica adds what it changed to what it has not
// sent yet, and sends the largest of that to all.
//
// All workers have the same weights after every round: each merges what all replicas sent, in the
// order of the replicas.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "muster/sync/sparse_code.h"
#include "muster/train/step/replica_messages.h"
#include "muster/train/step/round_exchange.h"

namespace muster::train {

class SparseRounds final : public RoundExchange {
 public:
  SparseRounds(const config::Job& job, const StrategyParts& parts, size_t first_kept);

  Status begin(const Peers& peers) override;
  std::span<const float> weights(int) const override { return weights_; }
  void take(int replica, std::span<const float> after) override;
  Result<bool> exchange(int64_t round, const Peers& peers) override;
  std::span<const float> kept(size_t, int replica) const override {
    return own_[static_cast<size_t>(replica)].error;
  }
  void apply(size_t block) override;

 private:
  struct Replica {
    std::vector<float> error;  // what it has changed and not sent; none if it is another worker's
    std::vector<float> statistics;  // what it has changed of those, which is sent as it is
    bool finite = true;
  };
  void pack(std::span<const int> replicas);
  bool merge();

  const config::Job& job_;
  StrategyParts parts_;
  const size_t first_kept_;
  const size_t statistics_begin_;  // in a buffer
  const float rate_;
  const sync::SparseCode code_;
  std::vector<float> weights_;
  std::vector<Replica> own_;        // by number
  std::vector<sync::Sparse> sent_;  // by number: what each sent in this round
  ReplicaMessages messages_;
  std::vector<float> statistics_;  // and its changes of statistics, replica after replica
};

}  // namespace muster::train
