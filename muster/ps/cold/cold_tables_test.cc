// Tables with and without a disk: the same rows, whatever happens.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "muster/ps/cold/cold_testing.h"
#include "muster/ps/table_data.h"

namespace muster::ps {
namespace {

constexpr ShardNumber kShards = 4;
constexpr size_t kLittle = size_t{2} << 20;  // some 14,000 rows of table 1
constexpr uint64_t kKeys = 40000;

std::vector<TableOptions> two_tables() {
  std::vector<TableOptions> tables(2);
  for (uint32_t i = 0; i < 2; ++i) {
    tables[i].id = i;
    tables[i].name = "table" + std::to_string(i);
    tables[i].width = 3 + 5 * i;
    tables[i].seed = 11;
  }
  tables[1].optimizer.rule = RowRule::kAdam;
  return tables;
}

// All shards of a server.
class Tables {
 public:
  Tables(std::vector<TableOptions> options, size_t memory, ColdRows* disk)
      : options_(std::move(options)), slabs_(memory) {
    if (disk != nullptr) {
      cold_.emplace(*disk);
      fetcher_.emplace(*disk, [] {});
    }
    for (ShardNumber i = 0; i < kShards; ++i) {
      shards_.push_back(
          std::make_unique<TableData>(i, kShards, options_, slabs_, cold_ ? &*cold_ : nullptr));
    }
  }

  TableData& shard(ShardNumber shard) { return *shards_[shard]; }
  ColdTier& cold() { return *cold_; }
  uint32_t width(uint32_t table) const { return options_[table].width; }

  Status push(PushHeader header, const std::vector<uint64_t>& keys, uint64_t seed) {
    for (auto& [shard, some] : by_shard(keys)) {
      MUSTER_RETURN_IF_ERROR(shards_[shard]->apply(bytes_of(header, some, seed)));
    }
    return {};
  }
  Status commit(int64_t step) {
    for (auto& shard : shards_) {
      MUSTER_RETURN_IF_ERROR(
          shard->apply(push_bytes({.kind = PushKind::kCommit, .step = step}, {}, {})));
    }
    return {};
  }
  std::vector<float> read(uint32_t table, const std::vector<uint64_t>& keys) {
    std::vector<float> all;
    for (auto& [shard, some] : by_shard(keys)) {
      std::vector<float> weights(some.size() * width(table));
      shards_[shard]->table(table).read(some, weights.data());
      all.insert(all.end(), weights.begin(), weights.end());
    }
    return all;
  }
  // As they were two steps before, where that is known.
  std::vector<float> read_old(uint32_t table, const std::vector<uint64_t>& keys) {
    std::vector<float> all;
    for (auto& [shard, some] : by_shard(keys)) {
      const int64_t then = shards_[shard]->clock() - 2;
      if (!shards_[shard]->knows(table, then)) continue;
      std::vector<float> weights(some.size() * width(table));
      shards_[shard]->read(table, some, then, weights.data());
      all.insert(all.end(), weights.begin(), weights.end());
    }
    return all;
  }
  std::vector<Hash128> hashes() {
    std::vector<Hash128> hashes;
    for (auto& shard : shards_) hashes.push_back(shard->hash());
    return hashes;
  }
  uint64_t rows() {
    uint64_t rows = 0;
    for (auto& shard : shards_) {
      for (uint32_t i = 0; i < options_.size(); ++i) rows += shard->table(i).rows();
    }
    return rows;
  }

  // As a server does.
  uint64_t fetch(uint32_t table, const std::vector<uint64_t>& keys) {
    uint64_t last = 0;
    for (auto& [shard, some] : by_shard(keys)) {
      last = std::max(last, shards_[shard]->table(table).fetch(some, false, *fetcher_));
    }
    return last;
  }
  void fetch_for(PushHeader header, const std::vector<uint64_t>& keys, uint64_t seed) {
    for (auto& [shard, some] : by_shard(keys)) {
      shards_[shard]->fetch(bytes_of(header, some, seed), *fetcher_);
    }
  }
  void take_fetched() {
    for (auto& fetched : fetcher_->take()) {
      cold_->note(std::move(fetched.status));
      shards_[fetched.part.shard]->table(fetched.part.table).arrive(fetched);
    }
  }
  void wait_for(uint64_t fetch) {
    for (take_fetched(); !fetcher_->taken(fetch); take_fetched()) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  static std::map<ShardNumber, std::vector<uint64_t>> by_shard(const std::vector<uint64_t>& keys) {
    std::map<ShardNumber, std::vector<uint64_t>> shards;
    for (const uint64_t key : keys) shards[shard_of(key, kShards)].push_back(key);
    return shards;
  }
  std::string bytes_of(PushHeader header, const std::vector<uint64_t>& keys, uint64_t seed) const {
    std::vector<float> gradients(keys.size() * width(header.table));
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = static_cast<float>((i * 13 + seed * 7) % 29) / 16 - 0.75F;
    }
    return push_bytes(header, keys, gradients);
  }

  const std::vector<TableOptions> options_;
  Slabs slabs_;
  std::optional<ColdTier> cold_;
  std::optional<RowFetcher> fetcher_;
  std::vector<std::unique_ptr<TableData>> shards_;
};

// Ascending. A third of them is used often.
std::vector<uint64_t> draw_keys(std::mt19937_64& random, size_t count) {
  std::vector<uint64_t> keys(count);
  for (uint64_t& key : keys) key = random() % (random() % 3 == 0 ? 500 : kKeys);
  std::ranges::sort(keys);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

// Steps with reads, lanes, commits, updates at once and evictions, in both; fetches at any time.
void train_both(Tables& memory, Tables& disk, int64_t from, int64_t to, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int64_t step = from; step < to; ++step) {
    for (uint16_t lane = 0; lane < 2; ++lane) {
      const auto table = static_cast<uint32_t>(random() % 2);
      const auto keys = draw_keys(random, 600);
      const auto draw = random();
      if (draw % 3 != 0) disk.fetch(table, keys);
      if (draw % 5 == 0) disk.take_fetched();
      ASSERT_EQ(memory.read(table, keys), disk.read(table, keys)) << step;
      const PushHeader header{
          .kind = PushKind::kAdd, .lane = lane, .table = table, .step = step, .lr = 0.05};
      if (draw % 2 == 0) disk.fetch_for(header, keys, draw);
      ASSERT_TRUE(memory.push(header, keys, draw).ok());
      ASSERT_TRUE(disk.push(header, keys, draw).ok());
    }
    const auto keys = draw_keys(random, 300);
    const PushHeader at_once{.table = 1, .step = step, .lr = 0.1};
    for (Tables* const tables : {&memory, &disk}) {
      ASSERT_TRUE(tables->push(at_once, keys, seed).ok());
      ASSERT_TRUE(tables->commit(step).ok());
    }
    ASSERT_EQ(memory.read_old(1, keys), disk.read_old(1, keys)) << step;
    if (random() % 2 == 0) disk.take_fetched();
    if (step % 40 == 39) {
      ASSERT_EQ(memory.hashes(), disk.hashes()) << step;
    }
    ASSERT_EQ(memory.rows(), disk.rows()) << step;
  }
}

TEST(ColdTables, HaveTheSameRowsAsOnesInMemory) {
  TestDisk disk;
  Tables memory(two_tables(), size_t{1} << 40, nullptr);
  Tables cold(two_tables(), kLittle, &disk.rows());
  train_both(memory, cold, 0, 200, 1);
  EXPECT_EQ(memory.hashes(), cold.hashes());
  const auto counts = cold.cold().counts();
  EXPECT_GT(counts.on_disk, counts.in_memory);
  EXPECT_GT(counts.written, counts.on_disk) << "rows go more than once";
  EXPECT_GT(counts.fetched, 1000u);
  EXPECT_GT(counts.late, 1000u);
}

TEST(ColdTables, AdmitAndEvictTheSameRows) {
  auto options = two_tables();
  options[0].admission = {.sights = 2, .probability = 0.9};
  options[0].eviction = {.age = 150, .most = 0, .every = 8};
  options[1].admission = {.sights = 3, .probability = 1};
  options[1].eviction = {.age = 60, .most = 4000, .every = 8};
  options[1].versions = 2;
  TestDisk disk;
  Tables memory(options, size_t{1} << 40, nullptr);
  Tables cold(options, kLittle, &disk.rows());
  train_both(memory, cold, 0, 240, 2);
  EXPECT_EQ(memory.hashes(), cold.hashes());
  EXPECT_GT(cold.cold().counts().written, 0u);
}

TEST(ColdTables, AnUpdateOfMoreRowsThanFitIntoMemory) {
  TestDisk disk;
  Tables memory(two_tables(), size_t{1} << 40, nullptr);
  Tables cold(two_tables(), kLittle, &disk.rows());
  std::vector<uint64_t> keys(kKeys);
  for (uint64_t i = 0; i < kKeys; ++i) keys[i] = i;
  for (int64_t step = 0; step < 3; ++step) {
    const PushHeader header{.table = 1, .step = step, .lr = 0.1};
    ASSERT_TRUE(memory.push(header, keys, 5).ok());
    ASSERT_TRUE(cold.push(header, keys, 5).ok());
    ASSERT_EQ(memory.read(1, keys), cold.read(1, keys));
  }
  EXPECT_EQ(memory.hashes(), cold.hashes());
  EXPECT_GT(cold.cold().counts().on_disk, kKeys / 2);
}

TEST(ColdTables, ACopyOfThemIsTheSameOnDiskAndInMemory) {
  TestDisk disk;
  TestDisk other_disk;
  Tables memory(two_tables(), size_t{1} << 40, nullptr);
  Tables cold(two_tables(), kLittle, &disk.rows());
  Tables loaded(two_tables(), size_t{1} << 40, nullptr);
  Tables loaded_cold(two_tables(), kLittle, &other_disk.rows());
  train_both(memory, cold, 0, 100, 3);
  // The first shard takes all the memory there is, and has to give to the others.
  for (ShardNumber i = 0; i < kShards; ++i) {
    std::string saved;
    cold.shard(i).save(saved);
    ASSERT_TRUE(loaded.shard(i).load(saved).ok());
    const auto status = loaded_cold.shard(i).load(saved);
    ASSERT_TRUE(status.ok()) << status.error().message();
  }
  EXPECT_EQ(loaded.hashes(), memory.hashes());
  EXPECT_EQ(loaded_cold.hashes(), memory.hashes());
  train_both(memory, loaded_cold, 100, 140, 4);
  // What is cleared is gone from the disk too.
  loaded_cold.shard(1).clear();
  memory.shard(1).clear();
  loaded_cold.take_fetched();
  EXPECT_EQ(loaded_cold.hashes(), memory.hashes());
  std::vector<uint64_t> keys(1000);
  for (uint64_t i = 0; i < keys.size(); ++i) keys[i] = i * 7;
  EXPECT_EQ(loaded_cold.read(1, keys), memory.read(1, keys));
}

// What arrives late is older than what happened meanwhile.
TEST(ColdTables, WhatAFetchBringsTooLateIsLeftOut) {
  TestDisk disk;
  Tables memory(two_tables(), size_t{1} << 40, nullptr);
  Tables cold(two_tables(), kLittle, &disk.rows());
  std::vector<uint64_t> all(kKeys);
  for (uint64_t i = 0; i < kKeys; ++i) all[i] = i;
  std::vector<uint64_t> some(all.begin(), all.begin() + 2000);
  for (int64_t step = 0; step < 6; ++step) {
    const PushHeader header{.table = 1, .step = step, .lr = 0.1};
    const uint64_t fetch = cold.fetch(1, some);
    for (Tables* const tables : {&memory, &cold}) {
      ASSERT_TRUE(tables->push(header, some, 9).ok());
      ASSERT_TRUE(tables->push(header, all, 8).ok());  // drives them out again
    }
    cold.wait_for(fetch);
    ASSERT_EQ(memory.read(1, some), cold.read(1, some)) << step;
  }
  EXPECT_EQ(memory.hashes(), cold.hashes());
}

TEST(ColdTables, AServersThreadNeedNotReadTheDisk) {
  TestDisk disk;
  Tables cold(two_tables(), kLittle, &disk.rows());
  std::mt19937_64 random(6);
  uint64_t late = 0;  // in the step in which rows begin to go, it is not known what is on disk
  for (int64_t step = 0; step < 150; ++step) {
    const auto keys = draw_keys(random, 800);
    const PushHeader header{.kind = PushKind::kAdd, .table = 1, .step = step, .lr = 0.05};
    cold.wait_for(cold.fetch(1, keys));
    cold.read(1, keys);
    cold.fetch_for(header, keys, 1);
    ASSERT_TRUE(cold.push(header, keys, 1).ok());
    ASSERT_TRUE(cold.commit(step).ok());
    if (step == 60) late = cold.cold().counts().late;
  }
  // Of 71,200 keys. Some were driven out again before they were needed.
  EXPECT_LT(cold.cold().counts().late - late, 700U);
  EXPECT_GT(cold.cold().counts().on_disk, 10000u);
  EXPECT_GT(cold.cold().counts().fetched, 10000u);
}

TEST(ColdTables, ADamagedDiskEndsUpdatesWithItsDirectory) {
  TestDisk disk;
  Tables cold(two_tables(), kLittle, &disk.rows());
  std::vector<uint64_t> keys(kKeys);
  for (uint64_t i = 0; i < kKeys; ++i) keys[i] = i;
  ASSERT_TRUE(cold.push({.table = 1, .lr = 0.1}, keys, 5).ok());
  Status status;
  for (int64_t step = 1; step < 50 && status.ok(); ++step) {
    disk.damage();
    status = cold.push({.table = 1, .step = step, .lr = 0.1}, keys, 5);
  }
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message().find(disk.path()), std::string::npos);
  EXPECT_TRUE(cold.cold().failure().has_value());
}

TEST(ColdTables, ShardsWithoutMemoryForARowSaySo) {
  TestDisk disk;
  Tables cold(two_tables(), 1000, &disk.rows());
  const auto status = cold.push({.table = 1, .lr = 0.1}, {1, 2, 3}, 5);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message().find("tables.memory"), std::string::npos);
}

}  // namespace
}  // namespace muster::ps
