#include "muster/ps/export_rows.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "muster/ps/by_shard.h"
#include "muster/ps/table_data.h"

namespace muster::ps {
namespace {

constexpr ShardNumber kFew = 3;
constexpr uint32_t kWidth = 2;

std::vector<TableOptions> make_tables() {
  std::vector<TableOptions> tables(2);
  for (uint32_t i = 0; i < 2; ++i) {
    tables[i].id = i;
    tables[i].width = kWidth + i;
  }
  tables[0].admission.sights = 2;
  tables[0].eviction = {.age = 12, .most = 20, .every = 4};
  return tables;
}

class ExportRows : public ::testing::Test {
 protected:
  ExportRows() {
    for (ShardNumber i = 0; i < kFew; ++i) {
      shards_.push_back(std::make_unique<TableData>(i, kFew, tables_, slabs_));
    }
  }
  // Few keys at a time, so that rows are evicted and made again.
  void train(int64_t from, int64_t to) {
    for (int64_t step = from; step < to; ++step) {
      std::set<uint64_t> drawn;
      while (drawn.size() < 16) drawn.insert(random_() % 120);
      const std::vector<uint64_t> keys(drawn.begin(), drawn.end());
      const std::vector<float> gradients(keys.size() * kWidth, static_cast<float>(step % 3) - 0.5F);
      const auto pushes = pushes_by_shard({.kind = PushKind::kAdd, .step = step, .lr = 0.1}, keys,
                                          gradients, kWidth, kFew);
      for (const auto& [shard, push] : pushes) ASSERT_TRUE(shards_[shard]->apply(*push).ok());
      for (auto& shard : shards_) {
        ASSERT_TRUE(
            shard->apply(push_bytes({.kind = PushKind::kCommit, .step = step}, {}, {})).ok());
      }
    }
  }
  ExportedRows exported(int64_t since) {
    std::vector<std::string> saved(kFew);
    for (ShardNumber i = 0; i < kFew; ++i) shards_[i]->save_rows(saved[i]);
    const std::vector<std::string_view> views(saved.begin(), saved.end());
    auto rows = export_rows(tables_, 0, views, since);
    EXPECT_TRUE(rows.ok()) << rows.error().message();
    return rows.ok() ? *std::move(rows) : ExportedRows{};
  }

  const std::vector<TableOptions> tables_ = make_tables();
  Slabs slabs_;
  std::vector<std::unique_ptr<TableData>> shards_;
  std::mt19937_64 random_{5};
};

using RowsByKey = std::map<uint64_t, std::vector<float>>;

void serve(const ExportedRows& change, RowsByKey& rows) {
  for (const uint64_t key : change.evicted) rows.erase(key);
  for (size_t i = 0; i < change.keys.size(); ++i) {
    const auto row = change.weights.begin() + static_cast<std::ptrdiff_t>(i * kWidth);
    rows[change.keys[i]] = {row, row + kWidth};
  }
}

TEST_F(ExportRows, WhatChangedSinceMakesTheLaterRowsOfTheEarlierOnes) {
  train(0, 23);
  RowsByKey served;
  serve(exported(0), served);
  ASSERT_GT(served.size(), 20U);
  size_t evicted = 0;
  int64_t since = 23;
  // Also while no shard, or one, has evicted something, and from one export to the next.
  for (const int64_t step : {24, 25, 31, 60, 61}) {
    train(since, step);
    const auto change = exported(since);
    EXPECT_EQ(change.evicted_after, 0);
    EXPECT_TRUE(std::ranges::is_sorted(change.keys));
    evicted += change.evicted.size();
    serve(change, served);
    RowsByKey expected;
    serve(exported(0), expected);
    EXPECT_EQ(served, expected) << step;
    if (step < 30) {
      EXPECT_LT(change.keys.size(), expected.size());
    }
    since = step;
  }
  EXPECT_GT(evicted, 10U);
}

TEST_F(ExportRows, RowsAreThoseOfTheTable) {
  train(0, 10);
  const auto all = exported(0);
  size_t rows = 0;
  for (auto& shard : shards_) {
    rows += shard->table(0).rows();
    shard->table(0).for_each_row([&](const Row& row) {
      const auto found = std::ranges::lower_bound(all.keys, row.key);
      ASSERT_TRUE(found != all.keys.end() && *found == row.key);
      const auto at = static_cast<size_t>(found - all.keys.begin()) * kWidth;
      EXPECT_TRUE(std::equal(row.values(), row.values() + kWidth, &all.weights[at]));
    });
  }
  EXPECT_EQ(all.keys.size(), rows);
}

TEST_F(ExportRows, WhatIsDamagedIsRefused) {
  std::vector<std::string> saved(kFew);
  for (ShardNumber i = 0; i < kFew; ++i) shards_[i]->save_rows(saved[i]);
  saved[1][9] = static_cast<char>(saved[1][9] ^ 1);
  const std::vector<std::string_view> views(saved.begin(), saved.end());
  EXPECT_FALSE(export_rows(tables_, 0, views, 0).ok());
}

}  // namespace
}  // namespace muster::ps
