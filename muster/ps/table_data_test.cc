#include "muster/ps/table_data.h"

#include <algorithm>
#include <cmath>
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
    return push_bytes({.table = table, .step = step, .lr = 0.1}, keys, gradients);
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

// The gradient of a lane in a step, and the push with it.
std::string lane_push(uint16_t lane, int64_t step, std::span<const uint64_t> keys) {
  std::vector<float> gradients(keys.size() * 3);
  for (size_t i = 0; i < gradients.size(); ++i) {
    gradients[i] = 1.0F / static_cast<float>(3 + i + size_t{7} * lane + static_cast<size_t>(step));
  }
  return push_bytes({.kind = PushKind::kAdd, .lane = lane, .table = 0, .step = step, .lr = 0.1},
                    keys, gradients);
}

std::string commit_push(int64_t step) {
  return push_bytes({.kind = PushKind::kCommit, .step = step}, {}, {});
}

TEST_F(TableDataTest, TheOrderOfLanesHasNoEffectNorHasOneThatComesTwice) {
  TableData data(1, kFew, tables_, slabs_);
  TableData other(1, kFew, tables_, slabs_);
  const auto some = keys(5);
  const auto others = keys(6, 8);
  for (int64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(data.apply(lane_push(0, step, some)).ok());
    ASSERT_TRUE(data.apply(lane_push(1, step, others)).ok());
    ASSERT_TRUE(data.apply(lane_push(2, step, some)).ok());
    ASSERT_TRUE(data.apply(commit_push(step)).ok());

    ASSERT_TRUE(other.apply(lane_push(2, step, some)).ok());
    ASSERT_TRUE(other.apply(lane_push(1, step, others)).ok());
    ASSERT_TRUE(other.apply(lane_push(1, step, others)).ok());
    ASSERT_TRUE(other.apply(lane_push(0, step, some)).ok());
    ASSERT_TRUE(other.apply(commit_push(step)).ok());
    ASSERT_TRUE(other.apply(commit_push(step)).ok());
    ASSERT_TRUE(other.apply(lane_push(0, step, some)).ok());  // too late
    EXPECT_EQ(data.hash(), other.hash());
    EXPECT_EQ(data.clock(), step + 1);
  }
  EXPECT_GT(data.table(0).rows(), 5U);
}

TEST_F(TableDataTest, ACommitIsOneUpdateWithTheSum) {
  TableData data(1, kFew, tables_, slabs_);
  TableData expected(1, kFew, tables_, slabs_);
  const auto some = keys(4);
  std::vector<float> sum(some.size() * 3);
  for (uint16_t lane = 0; lane < 3; ++lane) {
    std::vector<float> gradients(some.size() * 3);
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = static_cast<float>(static_cast<int>(i) - 5) / 64 * static_cast<float>(lane);
      sum[i] += gradients[i];  // exact
    }
    ASSERT_TRUE(
        data.apply(push_bytes({.kind = PushKind::kAdd, .lane = lane, .lr = 0.5}, some, gradients))
            .ok());
    EXPECT_EQ(data.table(0).rows(), 0U) << "nothing changes before the commit";
  }
  ASSERT_TRUE(data.apply(commit_push(0)).ok());
  ASSERT_TRUE(expected.apply(push_bytes({.lr = 0.5}, some, sum)).ok());
  ASSERT_TRUE(expected.apply(commit_push(0)).ok());  // for the clock
  EXPECT_EQ(data.hash(), expected.hash());
}

TEST_F(TableDataTest, SumsOfStepsUnderWayAreSaved) {
  TableData data(1, kFew, tables_, slabs_);
  const auto some = keys(5);
  ASSERT_TRUE(data.apply(lane_push(0, 0, some)).ok());
  ASSERT_TRUE(data.apply(commit_push(0)).ok());
  ASSERT_TRUE(data.apply(lane_push(1, 1, some)).ok());
  ASSERT_TRUE(data.apply(lane_push(0, 2, some)).ok());  // a lane that is ahead
  std::string saved;
  data.save(saved);
  TableData again(1, kFew, tables_, slabs_);
  ASSERT_TRUE(again.load(saved).ok());
  std::string saved_again;
  again.save(saved_again);
  EXPECT_EQ(saved_again, saved);
  for (TableData* one : {&data, &again}) {
    ASSERT_TRUE(one->apply(lane_push(1, 1, some)).ok());  // it is there
    ASSERT_TRUE(one->apply(lane_push(0, 1, some)).ok());
    ASSERT_TRUE(one->apply(commit_push(2)).ok());  // not the next one
    EXPECT_EQ(one->clock(), 1);
    ASSERT_TRUE(one->apply(commit_push(1)).ok());
    ASSERT_TRUE(one->apply(commit_push(2)).ok());
  }
  EXPECT_EQ(again.hash(), data.hash());
  EXPECT_EQ(again.clock(), 3);
}

TEST_F(TableDataTest, WhatCannotBeAddedIsRefused) {
  TableData data(1, kFew, tables_, slabs_);
  const auto some = keys(1);
  const float bad[] = {1, NAN, 0};
  EXPECT_FALSE(data.check(push_bytes({.kind = PushKind::kAdd}, some, bad)).ok());
  const float good[] = {1, 2, 3};
  EXPECT_TRUE(data.check(push_bytes({.kind = PushKind::kAdd}, some, good)).ok());
  EXPECT_FALSE(data.check(push_bytes({.kind = PushKind::kCommit}, some, good)).ok());
  EXPECT_FALSE(data.check(push_bytes({.kind = PushKind::kAdd, .lane = 1023}, some, good)).ok());
  EXPECT_FALSE(data.check(push_bytes({.kind = PushKind{4}}, some, good)).ok());
  EXPECT_FALSE(data.check(load_bytes(0, "rubbish")).ok());
}

TEST_F(TableDataTest, GoesBackToWhatWasSaved) {
  TableData data(1, kFew, tables_, slabs_);
  const auto some = keys(5);
  ASSERT_TRUE(data.apply(lane_push(0, 0, some)).ok());
  ASSERT_TRUE(data.apply(commit_push(0)).ok());
  ASSERT_TRUE(data.apply(lane_push(0, 1, some)).ok());  // is not saved
  std::string saved;
  data.save_rows(saved);
  const auto then = data.hash();
  ASSERT_TRUE(data.apply(commit_push(1)).ok());
  EXPECT_NE(data.hash(), then);
  ASSERT_TRUE(data.check(load_bytes(0, saved)).ok());
  ASSERT_TRUE(data.apply(load_bytes(0, saved)).ok());
  EXPECT_EQ(data.hash(), then);
  ASSERT_TRUE(data.apply(commit_push(1)).ok());
  EXPECT_EQ(data.clock(), 2);
  ASSERT_TRUE(data.apply(load_bytes(0, "")).ok());
  EXPECT_EQ(data.hash(), TableData(1, kFew, tables_, slabs_).hash());
}

TEST_F(TableDataTest, WhatIsOfAnEarlierEraHasNoEffect) {
  TableData data(1, kFew, tables_, slabs_);
  const auto some = keys(5);
  const auto of_era = [&](uint64_t era, PushKind kind) {
    const std::vector<float> gradients(some.size() * 3, 0.5F);
    const PushHeader header{.kind = kind, .era = era, .step = 0, .lr = 0.1};
    return kind == PushKind::kAdd ? push_bytes(header, some, gradients)
                                  : push_bytes(header, {}, {});
  };
  ASSERT_TRUE(data.apply(load_bytes(7, "")).ok());
  ASSERT_TRUE(data.apply(of_era(6, PushKind::kAdd)).ok());
  ASSERT_TRUE(data.apply(of_era(6, PushKind::kCommit)).ok());
  EXPECT_EQ(data.clock(), 0);
  ASSERT_TRUE(data.apply(of_era(7, PushKind::kAdd)).ok());
  ASSERT_TRUE(data.apply(load_bytes(7, "")).ok());  // another worker's of the same
  ASSERT_TRUE(data.apply(load_bytes(6, "")).ok());  // one that comes too late
  ASSERT_TRUE(data.apply(of_era(7, PushKind::kCommit)).ok());
  EXPECT_EQ(data.clock(), 1);
  EXPECT_EQ(data.table(0).rows(), some.size());
  EXPECT_FALSE(data.check(of_era(8, PushKind::kAdd)).ok()) << "nobody may be ahead of a load";
  EXPECT_FALSE(data.apply(of_era(8, PushKind::kAdd)).ok());
  std::string saved;
  data.save(saved);
  TableData copy(1, kFew, tables_, slabs_);
  ASSERT_TRUE(copy.load(saved).ok());
  ASSERT_TRUE(copy.apply(load_bytes(7, "")).ok());
  EXPECT_EQ(copy.clock(), 1) << "a copy is in the same era";
  ASSERT_TRUE(copy.apply(load_bytes(8, "")).ok());
  EXPECT_EQ(copy.clock(), 0);
}

}  // namespace
}  // namespace muster::ps
