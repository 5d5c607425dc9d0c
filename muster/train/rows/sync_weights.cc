#include "muster/train/rows/sync_weights.h"

#include <array>

#include "muster/ps/net/job_setup.h"

namespace muster::train {
namespace {

constexpr std::array<uint64_t, 1> kParametersAlone = {WeightRows::kParameters};

}  // namespace

SyncWeights::SyncWeights(const config::Job& job, std::unique_ptr<Tables> tables)
    : SyncRows(std::move(tables)), weights_(this->tables(), ps::weight_table(job)) {}

Status SyncWeights::read_weights(int64_t step, std::span<float> weights) {
  MUSTER_TRY(const bool exact,
             weights_.read_exactly(step, weights, [&] { return commit_again(step, step); }));
  if (exact) return {};
  return left_behind(step);
}

Status SyncWeights::push(int64_t step, int lane, std::span<const float> gradient, double lr) {
  auto header = header_of(step, lane);
  header.era = era();
  header.lr = lr;
  return weights_.push(header, kParametersAlone, gradient, {});
}

Status SyncWeights::load(std::vector<std::string> shards, uint64_t era) {
  if (shards.empty()) {
    MUSTER_TRY(shards, weights_.initial_shards(kParametersAlone, initial_()));
  }
  return SyncRows::load(std::move(shards), era);
}

}  // namespace muster::train
