#include "muster/ps/table_data.h"

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

constexpr ShardNumber kFew = 4;

std::vector<TableOptions> make_tables() {
  std::vector<TableOptions> tables(2);
  for (uint32_t i = 0; i < 2; ++i) {
    tables[i].id = i;
    tables[i].name = "table" + std::to_string(i);
    tables[i].width = 3 + i;
    tables[i].seed = 1;
  }
  tables[0].optimizer.rule = RowRule::kAdam;
  tables[1].admission.sights = 2;
  tables[1].eviction.age = 10;
  return tables;
}

class TableDataTest : public ::testing::Test {
 protected:
  // Keys of shard 1, ascending.
  static std::vector<uint64_t> keys(size_t count, uint64_t from = 0) {
    std::vector<uint64_t> found;
    for (uint64_t key = from; found.size() < count; ++key) {
      if (shard_of(key, kFew) == 1) found.push_back(key);
    }
    return found;
  }
  static std::string push_of(uint32_t table, int64_t step, std::span<const uint64_t> keys) {
    std::vector<float> gradients(keys.size() * (3 + table));
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = static_cast<float>(i + static_cast<size_t>(step)) / 8 - 1;
    }
    return push_bytes(table, step, 0.1, keys, gradients);
  }
  void fill(TableData& data) {
    for (int64_t step = 0; step < 5; ++step) {
      ASSERT_TRUE(data.apply(push_of(0, step, keys(20, static_cast<uint64_t>(step)))).ok());
      ASSERT_TRUE(
          data.apply(push_of(1, step, keys(9, static_cast<uint64_t>(30 * (step / 2))))).ok());
    }
  }

  const std::vector<TableOptions> tables_ = make_tables();
  Slabs slabs_;
};

TEST_F(TableDataTest, WhatIsSavedIsLoaded) {
  TableData data(1, kFew, tables_, slabs_);
  fill(data);
  data.table(1).evict(12);
  ASSERT_GT(data.table(1).tombstones().size(), 0U);
  std::string saved;
  data.save(saved);
  TableData other(1, kFew, tables_, slabs_);
  ASSERT_TRUE(other.apply(push_of(0, 9, keys(3))).ok());  // gone afterwards
  const auto loaded = other.load(saved);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  EXPECT_EQ(other.hash(), data.hash());
  ASSERT_TRUE(other.apply(push_of(0, 9, keys(30))).ok());
  EXPECT_NE(other.hash(), data.hash());
  ASSERT_TRUE(data.apply(push_of(0, 9, keys(30))).ok());
  EXPECT_EQ(other.hash(), data.hash());
  data.clear();
  EXPECT_EQ(data.hash(), TableData(1, kFew, tables_, slabs_).hash());
}

TEST_F(TableDataTest, WhatIsCutShortOrTooLongIsRefused) {
  TableData data(1, kFew, tables_, slabs_);
  fill(data);
  std::string saved;
  data.save(saved);
  TableData other(1, kFew, tables_, slabs_);
  for (const size_t size : {size_t{0}, size_t{7}, size_t{24}, saved.size() / 2, saved.size() - 1}) {
    EXPECT_FALSE(other.load(std::string_view(saved).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(other.load(saved + "x").ok());
}

TEST_F(TableDataTest, PushesAreChecked) {
  const TableData data(1, kFew, tables_, slabs_);
  const auto good = keys(4);
  EXPECT_TRUE(data.check(push_of(0, 1, good)).ok());
  EXPECT_TRUE(data.check(push_of(0, 1, {})).ok());
  EXPECT_FALSE(data.check("").ok());
  EXPECT_FALSE(data.check(push_of(0, 1, good).substr(1)).ok());
  EXPECT_FALSE(data.check(push_of(0, 1, good) + "x").ok());
  EXPECT_FALSE(data.check(push_of(0, -1, good)).ok());
  EXPECT_FALSE(data.check(push_of(2, 1, good)).ok()) << "there is no table 2";
  auto twice = good;
  twice[1] = twice[0];
  EXPECT_FALSE(data.check(push_of(0, 1, twice)).ok());
  auto elsewhere = good;
  elsewhere.back() = good.back() + 1;
  while (shard_of(elsewhere.back(), kFew) == 1) ++elsewhere.back();
  EXPECT_FALSE(data.check(push_of(0, 1, elsewhere)).ok());
  std::string huge = push_of(0, 1, good);
  const uint32_t count = 0xffffffff;
  std::memcpy(huge.data() + 4, &count, sizeof(count));
  EXPECT_FALSE(data.check(huge).ok());
}

TEST_F(TableDataTest, AnAddressThatIsOddIsNoMatter) {
  TableData a(1, kFew, tables_, slabs_);
  TableData b(1, kFew, tables_, slabs_);
  const std::string push = push_of(0, 3, keys(10));
  const std::string moved = "x" + push;
  ASSERT_TRUE(a.apply(push).ok());
  ASSERT_TRUE(b.apply(std::string_view(moved).substr(1)).ok());
  EXPECT_EQ(a.hash(), b.hash());
}

}  // namespace
}  // namespace muster::ps
