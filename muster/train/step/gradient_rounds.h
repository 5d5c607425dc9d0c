// Steps of the strategies that send compressed gradients: topk, threshold, onebit, powersgd.
//
// A round is one step. All replicas have the same weights, and the same state of the optimizer, in
// the working arena (StrategyParts::work). In each step
//
//   e_r = e_r + f_r * g_r              each replica adds its gradient to what it has not sent yet;
//                                      f_r is 1, if all have equally many samples
//   s_r = what it sends; e_r = e_r - s_r
//   g = 1/R * sum of s_r               every worker, in the order of the replicas
//
// and every worker makes the update of the job's optimizer with g. Running statistics of BatchNorm
// are sent as they are, and become the mean. What has not been sent, e_r, is what a replica keeps
// until it is committed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "muster/train/step/compressor.h"
#include "muster/train/step/round_exchange.h"
#include "muster/train/step/updater.h"

namespace muster::train {

class GradientRounds final : public RoundExchange {
 public:
  GradientRounds(const config::Job& job, const StrategyParts& parts, size_t first_kept);

  bool in_place() const override { return true; }
  Status begin(const Peers& peers) override;
  std::span<const float> weights(int) const override { return parts_.work->weights().first(size_); }
  // The gradient is in the last state of the working arena (ReplicaRunner).
  void take(int replica, std::span<const float> after) override;
  Result<bool> exchange(int64_t round, const Peers& peers) override;
  std::span<const float> kept(size_t, int replica) const override {
    return own_[static_cast<size_t>(replica)].error;
  }
  void apply(size_t block) override;

 private:
  std::span<float> statistics() {
    return parts_.work->weights().first(size_).subspan(statistics_begin_);
  }
  // Of a replica in the step under way: its part of the samples, times the number of replicas.
  float weight_of(int replica) const;
  uint64_t common_hash(int64_t round, bool all);
  void update(int64_t step, const Vitals& vitals);

  const config::Job& job_;
  StrategyParts parts_;
  const size_t first_kept_;        // states of the arena: the optimizer's, the compressor's, errors
  const size_t size_;              // of a buffer
  const size_t statistics_begin_;  // in it
  const std::unique_ptr<Compressor> compressor_;
  const float share_;       // 1/R
  std::vector<float> sum_;  // of what all replicas have sent
  Updater updater_;
  std::vector<float> statistics_;         // as they were at the beginning of the step
  std::vector<Compressor::Replica> own_;  // by number
  int64_t step_ = 0;                      // the one under way
};

}  // namespace muster::train
