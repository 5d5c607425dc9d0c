#include "muster/train/rows/local_rows.h"

#include <algorithm>
#include <utility>

#include "muster/ps/by_shard.h"
#include "muster/ps/net/job_setup.h"

namespace muster::train {

LocalRows::LocalRows(const config::Job& job) : setup_(ps::setup_of(job)) {
  for (ps::ShardNumber i = 0; i < setup_.shards; ++i) {
    shards_.push_back(std::make_unique<ps::TableData>(i, setup_.shards, setup_.tables, slabs_));
  }
}

Status LocalRows::read_rows(int64_t /*step*/, std::span<const uint64_t> keys, float* rows) {
  const size_t floats = options().width;
  std::vector<uint64_t> some;
  std::vector<float> their;
  const std::lock_guard lock(mutex_);
  ps::ByShard(keys, setup_.shards).for_each([&](ps::ShardNumber shard, auto places) {
    some.clear();
    for (const uint32_t place : places) some.push_back(keys[place]);
    their.resize(some.size() * floats);
    shards_[shard]->table(kRowTable).read(some, their.data());
    for (size_t i = 0; i < places.size(); ++i) {
      std::copy_n(&their[i * floats], floats, rows + places[i] * floats);
    }
  });
  return {};
}

Status LocalRows::add_rows(const ps::PushHeader& header, std::span<const uint64_t> keys,
                           std::span<const float> gradients) {
  const auto pushes = ps::pushes_by_shard(header, keys, gradients, options().width, setup_.shards);
  const std::lock_guard lock(mutex_);
  for (const auto& [shard, push] : pushes) MUSTER_RETURN_IF_ERROR(shards_[shard]->apply(*push));
  return {};
}

Status LocalRows::commit(int64_t step) {
  const auto push =
      ps::push_bytes({.kind = ps::PushKind::kCommit, .era = era(), .step = step}, {}, {});
  const std::lock_guard lock(mutex_);
  for (auto& shard : shards_) MUSTER_RETURN_IF_ERROR(shard->apply(push));
  return {};
}

Result<Hash128> LocalRows::hash(int64_t /*step*/) {
  const std::lock_guard lock(mutex_);
  Hasher hasher;
  for (auto& shard : shards_) {
    const Hash128 one = shard->hash();
    hasher.add(&one, sizeof(one));
  }
  return hasher.finish();
}

Result<std::vector<std::string>> LocalRows::save(int64_t /*step*/) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> saved(shards_.size());
  for (size_t i = 0; i < shards_.size(); ++i) shards_[i]->save_rows(saved[i]);
  return saved;
}

Status LocalRows::load(std::vector<std::string> shards, uint64_t era) {
  if (!shards.empty() && shards.size() != shards_.size()) {
    return Error(ErrorKind::kCheckpoint,
                 "rows were saved in {} shards, and the job has {}: set tables.shards as it was",
                 shards.size(), shards_.size());
  }
  shards.resize(shards_.size());
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < shards.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(shards_[i]->apply(ps::load_bytes(era, shards[i])));
  }
  return {};
}

}  // namespace muster::train
