// The rounds of streaming (sync/recipe.h): diloco in fragments, each sent while the replicas go on.
//
// The weights are cut into sync.fragments parts of whole blocks. A period is cut into as many
// segments, which are the rounds here. At the end of each
//
//   the fragment that has been under way is there: the outer optimizer updates it in the common
//   weights w, and each replica takes over a part of that: w_r = blend * w_r + (1 - blend) * w
//   what the replicas have changed of the next fragment is put under way
//
// A result is due exactly one segment after it was sent: if it is late, all wait for it. At the end
// of what is committed together the last fragment is not sent ahead but waited for, so that nothing
// is under way when the state is committed. At the end of the job all fragments are sent once more,
// and become the mean of the replicas, without the outer optimizer.
//
// Statistics of BatchNorm are in the last fragment, and become the mean; what a replica has added
// to them meanwhile stays.
//
// Douillard et al., arXiv 2501.18512. There a fragment is some layers; here all have equally many
// blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "muster/base/thread.h"
#include "muster/sync/recipe.h"
#include "muster/train/step/round_exchange.h"

namespace muster::train {

class StreamingRounds final : public RoundExchange {
 public:
  StreamingRounds(const config::Job& job, const StrategyParts& parts, size_t first_kept);
  void cancel() override;
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
  struct Replica {
    std::vector<float> weights;  // none if it is another worker's
    std::vector<float> away;     // how far they are from the common ones, when that is committed
    std::vector<float> changes;  // of the fragment that is under way
  };
  // Neighbouring blocks of one tensor.
  struct Piece {
    size_t begin;  // in a buffer of all blocks
    size_t size;
    bool statistic;
  };
  struct Fragment {
    std::vector<Piece> pieces;  // each is a tensor of its layout
    // Null, both, if it has no blocks.
    std::unique_ptr<exact::BlockLayout> layout;
    std::unique_ptr<ReplicaSums> sums;
  };
  // What another thread is doing.
  struct Transfer {
    size_t fragment;
    bool end;                            // of the job
    std::optional<Result<bool>> finite;  // when it is done
    Thread thread;
  };

  void cut();
  void send(size_t fragment, int64_t round, const Peers& peers);
  // Waits for what is under way. False: something is not finite.
  Result<bool> receive(const Peers& peers);
  // `end`: with what was sent at the end of the job.
  void merge(const Fragment& fragment, std::span<const int> replicas, bool end);

  const config::Job& job_;
  StrategyParts parts_;
  const size_t first_kept_;
  const sync::Recipe recipe_;
  const size_t size_;  // of a buffer
  std::vector<Fragment> fragments_;
  std::vector<float> weights_;  // w
  std::vector<float> momentum_;
  std::vector<Replica> own_;            // by number
  Vitals progress_;                     // of the transfer: it has no say in who waits
  std::unique_ptr<Transfer> transfer_;  // the last member: its thread uses the others
};

}  // namespace muster::train
