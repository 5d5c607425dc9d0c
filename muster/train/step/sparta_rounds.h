// The rounds of sparta (sync/recipe.h): after each one a random part of the weights becomes the
// mean of the replicas'.
//
// All workers draw the same places, which are not sent. What is sent is packed: a buffer of its own
// has the values at these places, tensor after tensor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "muster/exact/block_layout.h"
#include "muster/train/step/replica_sums.h"
#include "muster/train/step/round_exchange.h"

namespace muster::train {

class SpartaRounds final : public RoundExchange {
 public:
  SpartaRounds(const config::Job& job, const StrategyParts& parts, size_t first_kept);

  Status begin(const Peers& peers) override;
  std::span<const float> weights(int replica) const override {
    return own_[static_cast<size_t>(replica)].weights;
  }
  void take(int replica, std::span<const float> after) override;
  Result<bool> exchange(int64_t round, const Peers& peers) override;
  std::span<const float> kept(size_t, int replica) const override {
    return own_[static_cast<size_t>(replica)].away;
  }
  void apply(size_t block) override;

 private:
  struct Replica {  // of this worker
    std::vector<float> weights;
    std::vector<float> sent;  // packed: how far it is from the state of the job
    std::vector<float> away;  // the same of all weights, at the end of what is committed together
  };
  // Where the values of a block are in a packed buffer.
  struct Packed {
    size_t begin;
    size_t size;
  };
  void draw(int64_t round);
  void gather(Replica& replica) const;
  void scatter(std::span<const int> replicas);

  const config::Job& job_;
  StrategyParts parts_;
  const size_t first_kept_;
  const float share_;                // 1/R
  const exact::BlockLayout layout_;  // of a packed buffer
  std::vector<Packed> packed_;       // by block
  ReplicaSums sums_;
  std::vector<uint16_t> places_;  // in their blocks, packed
  std::vector<float> mean_;       // of what replicas sent
  std::vector<Replica> own_;      // by number
};

}  // namespace muster::train
