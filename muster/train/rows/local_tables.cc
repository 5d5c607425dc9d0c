#include "muster/train/rows/local_tables.h"

#include <algorithm>
#include <utility>

#include "muster/ps/by_shard.h"

namespace muster::train {

LocalTables::LocalTables(ps::TablesSetup setup) : setup_(std::move(setup)) {
  for (ps::ShardNumber i = 0; i < setup_.shards; ++i) {
    shards_.push_back(std::make_unique<ps::TableData>(i, setup_.shards, setup_.tables, slabs_));
  }
}

std::vector<int64_t> LocalTables::read_versions(uint32_t table, std::span<const uint64_t> keys,
                                                const VersionOf& version, float* rows) {
  const size_t floats = setup_.tables[table].width;
  std::vector<uint64_t> some;
  std::vector<float> their;
  std::vector<int64_t> clocks;
  const std::lock_guard lock(mutex_);
  ps::ByShard(keys, setup_.shards).for_each([&](ps::ShardNumber number, auto places) {
    auto& shard = *shards_[number];
    const int64_t wanted = version(shard);
    clocks.push_back(shard.knows(table, wanted) ? wanted : shard.clock());
    some.clear();
    for (const uint32_t place : places) some.push_back(keys[place]);
    their.resize(some.size() * floats);
    shard.read(table, some, clocks.back(), their.data());
    for (size_t i = 0; i < places.size(); ++i) {
      std::copy_n(&their[i * floats], floats, rows + places[i] * floats);
    }
  });
  return clocks;
}

Status LocalTables::read(uint32_t table, std::span<const uint64_t> keys, int64_t /*clock*/,
                         float* rows, std::vector<int64_t>& clocks) {
  const auto now = [](const ps::TableData& shard) { return shard.clock(); };
  clocks = read_versions(table, keys, now, rows);
  return {};
}

// There is nothing to wait for, so rows are read when they are wanted.
class LocalTables::Read final : public RowsRead {
 public:
  Read(LocalTables& tables, uint32_t table, std::span<const uint64_t> keys, int64_t clock)
      : tables_(tables), table_(table), keys_(keys.begin(), keys.end()), clock_(clock) {}
  Result<bool> finish(float* rows, const std::function<Status()>& /*if_late*/) override {
    const auto then = [&](const ps::TableData& /*shard*/) { return clock_; };
    const auto clocks = tables_.read_versions(table_, keys_, then, rows);
    return std::ranges::all_of(clocks, [&](int64_t clock) { return clock == clock_; });
  }

 private:
  LocalTables& tables_;
  const uint32_t table_;
  const std::vector<uint64_t> keys_;
  const int64_t clock_;
};

Result<std::unique_ptr<RowsRead>> LocalTables::begin_read(uint32_t table,
                                                          std::span<const uint64_t> keys,
                                                          int64_t clock) {
  return std::unique_ptr<RowsRead>(std::make_unique<Read>(*this, table, keys, clock));
}

Status LocalTables::push(const ps::PushHeader& header, std::span<const uint64_t> keys,
                         std::span<const float> gradients) {
  const size_t floats = ps::floats_of(header.kind, setup_.tables[header.table].width);
  const auto pushes = ps::pushes_by_shard(header, keys, gradients, floats, setup_.shards);
  const std::lock_guard lock(mutex_);
  for (const auto& [shard, push] : pushes) MUSTER_RETURN_IF_ERROR(shards_[shard]->apply(*push));
  return {};
}

Status LocalTables::apply_to_all(std::string_view push) {
  const std::lock_guard lock(mutex_);
  for (auto& shard : shards_) MUSTER_RETURN_IF_ERROR(shard->apply(push));
  return {};
}

Status LocalTables::commit(uint64_t era, int64_t step) {
  return apply_to_all(
      ps::push_bytes({.kind = ps::PushKind::kCommit, .era = era, .step = step}, {}, {}));
}

Status LocalTables::apply(uint64_t era, const ps::PlacedPushes& pushes) {
  return apply_to_all(ps::apply_bytes(era, pushes));
}

Status LocalTables::push_order(uint64_t era, std::string_view operation) {
  const std::lock_guard lock(mutex_);
  return shards_[ps::kOrderShard]->apply(ps::order_push(era, operation));
}

Result<ps::OrderView> LocalTables::order(uint64_t worker, int64_t from, bool results) {
  const std::lock_guard lock(mutex_);
  return shards_[ps::kOrderShard]->order().view(worker, from, results);
}

Result<Hash128> LocalTables::hash(uint64_t /*era*/, int64_t /*clock*/) {
  const std::lock_guard lock(mutex_);
  Hasher hasher;
  for (auto& shard : shards_) {
    const Hash128 one = shard->hash();
    hasher.add(&one, sizeof(one));
  }
  return hasher.finish();
}

Result<std::vector<std::string>> LocalTables::save(uint64_t /*era*/, int64_t /*clock*/) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> saved(shards_.size());
  for (size_t i = 0; i < shards_.size(); ++i) shards_[i]->save_rows(saved[i]);
  return saved;
}

Status LocalTables::load(uint64_t era, std::span<const std::string> shards) {
  MUSTER_RETURN_IF_ERROR(ps::check_shards(setup_, shards.size()));
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < shards.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(shards_[i]->apply(ps::load_bytes(era, shards[i])));
  }
  return {};
}

Status LocalTables::put(uint32_t table, uint64_t key, std::span<const float> weights) {
  const auto& options = setup_.tables[table];
  std::vector<float> row(options.width + options.optimizer.state(options.width));
  std::ranges::copy(weights, row.begin());
  options.optimizer.begin(row.data(), options.width);
  const std::lock_guard lock(mutex_);
  return shards_[ps::shard_of(key, setup_.shards)]->table(table).put(key, 0, 1, row);
}

std::string LocalTables::record() {
  const std::lock_guard lock(mutex_);
  return shards_[ps::kOrderShard]->order().record();
}

}  // namespace muster::train
