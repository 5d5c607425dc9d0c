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
  void apply(size_t block, const ReplicaSums& sums, size_t first,
             std::span<float> scratch) override;

 private:
  struct Replica {
    std::vector<float> error;  // what it has changed and not sent; none if it is another worker's
    std::vector<float> statistics;  // what it has changed of those, which is sent as it is
    bool finite = true;
  };
  // What a worker tells about the message that it is about to send.
  struct Notice {
    uint64_t size;
    uint64_t weights;  // hash of those that all have in common
    uint64_t finite;
  };
  void pack(std::span<const int> replicas);
  Result<std::vector<Notice>> exchange_notices(const Peers& peers);
  Status exchange_messages(std::span<const Notice> notices, const Peers& peers);
  // All messages, worker after worker.
  Status unpack(std::span<const Notice> notices, const Peers& peers, bool& finite);
  bool unpack(std::span<const std::byte> from, std::vector<bool>& there, bool& finite);
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
  std::vector<float> statistics_;   // and its changes of statistics, replica after replica
  std::vector<std::byte> out_;      // the message of this worker
  std::vector<std::byte> all_;      // those of all, each with room for the largest
  size_t room_ = 0;
};

}  // namespace muster::train
