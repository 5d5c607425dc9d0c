#include "muster/train/rows/sync_weights.h"

#include "muster/ps/net/job_setup.h"

namespace muster::train {

SyncWeights::SyncWeights(const config::Job& job, std::unique_ptr<Tables> tables)
    : SyncRows(std::move(tables)), weights_(this->tables(), ps::weight_table(job)) {}

Status SyncWeights::read_weights(int64_t step, std::span<float> weights) {
  std::vector<int64_t> clocks;
  MUSTER_RETURN_IF_ERROR(weights_.read(step, weights, clocks, [&] { return commit_again(step); }));
  return check_clocks(step, clocks);
}

Status SyncWeights::push(int64_t step, int lane, std::span<const float> gradient, double lr) {
  auto header = header_of(step, lane);
  header.era = era();
  header.lr = lr;
  return weights_.push(header, gradient, {});
}

Status SyncWeights::load(std::vector<std::string> shards, uint64_t era) {
  if (shards.empty()) {
    MUSTER_TRY(shards, weights_.initial_shards(initial_()));
  }
  return SyncRows::load(std::move(shards), era);
}

}  // namespace muster::train
