#include "muster/ps/table.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

TableOptions options_of(uint32_t width = 4) {
  TableOptions options;
  options.id = 3;
  options.name = "users";
  options.width = width;
  options.seed = 17;
  return options;
}

std::vector<float> read(TableShard& shard, std::vector<uint64_t> keys) {
  std::vector<float> weights(keys.size() * shard.options().width);
  shard.read(keys, weights.data());
  return weights;
}

Status update(TableShard& shard, const std::vector<uint64_t>& keys, int64_t step, float g = 1) {
  const std::vector<float> gradients(keys.size() * shard.options().width, g);
  return shard.update(keys, gradients.data(), step, 0.1);
}

TEST(Table, AKeyHasItsWeightsBeforeItHasARow) {
  const auto options = options_of();
  Slabs slabs;
  TableShard shard(options, slabs);
  const auto before = read(shard, {7, 8, 7});
  EXPECT_EQ(shard.rows(), 0u);
  EXPECT_EQ(slabs.used(), 0u) << "reading takes no memory";
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 4, before.begin() + 8));
  EXPECT_FALSE(std::equal(before.begin(), before.begin() + 4, before.begin() + 4));
  for (const float w : before) EXPECT_LE(std::abs(w), 0.05F);
  ASSERT_TRUE(update(shard, {7}, 0, 0).ok());  // a gradient of zero
  EXPECT_EQ(shard.rows(), 1u);
  EXPECT_EQ(read(shard, {7, 8, 7}), before);
}

TEST(Table, TheSameUpdatesGiveTheSameBits) {
  auto options = options_of();
  options.admission = {.sights = 2, .probability = 0.9};
  options.eviction = {.age = 40, .most = 150};
  const auto run = [&](bool detour) {
    Slabs slabs;
    TableShard shard(options, slabs);
    std::mt19937_64 random(3);
    for (int64_t step = 0; step < 200; ++step) {
      std::vector<uint64_t> keys;
      for (int i = 0; i < 20; ++i) keys.push_back(random() % 400);
      std::ranges::sort(keys);
      keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
      // Another order of the keys, and reading, make no difference.
      if (detour) std::ranges::reverse(keys);
      if (detour && step % 7 == 0) read(shard, {1, 2, 3, 1000});
      EXPECT_TRUE(update(shard, keys, step, static_cast<float>(step % 5) - 2).ok());
      if (step % 10 == 9) shard.evict(step);
    }
    EXPECT_GT(shard.rows(), 20u);
    EXPECT_LE(shard.rows(), 150u);
    EXPECT_GT(shard.candidates(), 0u);
    EXPECT_FALSE(shard.tombstones().empty());

    // As a move of the shard to another server would make it.
    Slabs others;
    TableShard copy(options, others);
    shard.for_each_row([&](const Row& row) {
      EXPECT_TRUE(copy.put(row.key, row.used, row.sights, std::span(row.values(), 5)).ok());
    });
    shard.for_each_candidate(
        [&](const Row& row) { EXPECT_TRUE(copy.put(row.key, row.used, row.sights, {}).ok()); });
    for (const auto tombstone : shard.tombstones()) EXPECT_TRUE(copy.put(tombstone));
    EXPECT_EQ(copy.hash(), shard.hash());
    EXPECT_TRUE(update(copy, {5, 6, 7000}, 200).ok());
    EXPECT_NE(copy.hash(), shard.hash());
    EXPECT_TRUE(update(shard, {7000, 6, 5}, 200).ok());
    EXPECT_EQ(copy.hash(), shard.hash());
    return shard.hash();
  };
  EXPECT_EQ(run(false), run(true));
}

TEST(Table, RowsAreMadeAtTheNthSight) {
  auto options = options_of();
  options.admission.sights = 3;
  options.eviction.age = 5;
  EXPECT_TRUE(check(options).ok());
  Slabs slabs;
  TableShard shard(options, slabs);
  const auto before = read(shard, {5});
  for (int64_t step = 0; step < 2; ++step) {
    ASSERT_TRUE(update(shard, {5, 6 + static_cast<uint64_t>(step)}, step).ok());
    EXPECT_EQ(shard.rows(), 0u);
    EXPECT_EQ(read(shard, {5}), before);
  }
  EXPECT_EQ(shard.candidates(), 3u);
  ASSERT_TRUE(update(shard, {5}, 2).ok());
  EXPECT_EQ(shard.rows(), 1u);
  EXPECT_EQ(shard.candidates(), 2u);
  EXPECT_NE(read(shard, {5}), before);
  shard.for_each_row([](const Row& row) { EXPECT_EQ(row.sights, 3); });
  shard.evict(7);
  EXPECT_EQ(shard.candidates(), 0u) << "they were last seen in steps 0 and 1";
  EXPECT_EQ(shard.rows(), 1u);
}

TEST(Table, AKeyThatIsThereTwiceIsRefused) {
  const auto options = options_of();
  Slabs slabs;
  TableShard shard(options, slabs);
  EXPECT_FALSE(update(shard, {4, 9, 4}, 0).ok());
  TableShard other(options, slabs);
  const std::vector<float> values(5);
  EXPECT_TRUE(other.put(3, 0, 1, values).ok());
  EXPECT_FALSE(other.put(3, 0, 1, values).ok());
  EXPECT_FALSE(other.put(3, 0, 1, {}).ok());
}

TEST(Table, WithoutMemoryAnErrorSaysWhatToDo) {
  const auto options = options_of(1000);
  Slabs slabs(kHugePage);
  TableShard shard(options, slabs);
  Status status;
  for (uint64_t key = 0; status.ok(); ++key) status = update(shard, {key}, 0);
  EXPECT_NE(status.error().message().find("table 'users' has no memory"), std::string::npos);
}

TEST(Table, AnEvictedKeyBeginsAgainWithoutItsState) {
  auto options = options_of();
  options.optimizer.rule = RowRule::kAdam;
  options.eviction.age = 2;
  Slabs slabs;
  TableShard shard(options, slabs), fresh(options, slabs);
  ASSERT_TRUE(update(shard, {1}, 0, 3).ok());
  shard.evict(9);
  EXPECT_EQ(shard.rows(), 0u);
  ASSERT_TRUE(update(shard, {1}, 10).ok());
  ASSERT_TRUE(update(fresh, {1}, 10).ok());
  EXPECT_NE(shard.hash(), fresh.hash()) << "it has a tombstone";
  const auto values = [](TableShard& of) {
    std::vector<float> all;
    of.for_each_row([&](const Row& row) { all.assign(row.values(), row.values() + 12); });
    return all;
  };
  EXPECT_EQ(values(shard), values(fresh));
}

TEST(Table, OptionsThatCannotWorkAreRefused) {
  auto options = options_of();
  EXPECT_TRUE(check(options).ok());
  options.admission.sights = 2;
  EXPECT_FALSE(check(options).ok());
  options = options_of(0);
  EXPECT_FALSE(check(options).ok());
  options = options_of();
  options.optimizer.eps = 0;
  EXPECT_FALSE(check(options).ok());
  options = options_of();
  options.eviction.every = 0;
  EXPECT_FALSE(check(options).ok());
  for (const double probability : {0.0, 1.5, std::nan("")}) {
    options = options_of();
    options.admission.probability = probability;
    EXPECT_FALSE(check(options).ok()) << probability;
  }
}

TEST(Table, WithAProbabilitySomeAreAdmitted) {
  auto options = options_of();
  options.admission.probability = 0.25;
  Slabs slabs;
  TableShard shard(options, slabs);
  std::vector<uint64_t> keys(4000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * i;
  ASSERT_TRUE(update(shard, keys, 0).ok());
  EXPECT_NEAR(static_cast<double>(shard.rows()), 1000, 120);
}

TEST(Table, OldRowsAndRareOnesGo) {
  auto options = options_of();
  options.eviction = {.age = 10, .most = 3};
  Slabs slabs;
  TableShard shard(options, slabs);
  const auto initial = read(shard, {1});
  ASSERT_TRUE(update(shard, {1, 2}, 0).ok());
  ASSERT_TRUE(update(shard, {2, 3, 4, 5, 6}, 8).ok());
  ASSERT_TRUE(update(shard, {6, 2}, 9).ok());
  EXPECT_NE(read(shard, {1}), initial);
  shard.evict(11);
  // 1 is too old; of the others 3 stay: 2 and 6 were seen more often, of the rest the least key.
  EXPECT_EQ(shard.rows(), 3u);
  EXPECT_EQ(read(shard, {1}), initial);
  std::vector<uint64_t> gone;
  for (const auto& tombstone : shard.tombstones()) gone.push_back(tombstone.key);
  std::ranges::sort(gone);
  EXPECT_EQ(gone, (std::vector<uint64_t>{1, 4, 5}));
  EXPECT_EQ(shard.tombstones_after(), 0u);
}

TEST(Table, TheLastTombstonesAreKept) {
  auto options = options_of(1);
  options.eviction.most = 10;
  Slabs slabs;
  TableShard shard(options, slabs);
  constexpr uint64_t kMade = 1000;  // in a step
  for (uint64_t step = 0; step < 20; ++step) {
    std::vector<uint64_t> keys(kMade);
    for (uint64_t i = 0; i < kMade; ++i) keys[i] = step * kMade + i;
    ASSERT_TRUE(update(shard, keys, static_cast<int64_t>(step)).ok());
    shard.evict(static_cast<int64_t>(step) + 1);
    EXPECT_LE(shard.tombstones().size(), kFewTombstones + shard.rows());
  }
  // Those of one step go together: four times 1,000, and not the fifth.
  EXPECT_EQ(shard.tombstones().size(), 4 * kMade);
  EXPECT_EQ(shard.tombstones_after(), 16u);
  EXPECT_EQ(shard.tombstones().front().step, 17u);
  EXPECT_FALSE(shard.put(Tombstone{1, 16}));
  EXPECT_FALSE(shard.put(Tombstone{1, 19})) << "before the last one";
  EXPECT_TRUE(shard.put(Tombstone{1, 20}));
}

}  // namespace
}  // namespace muster::ps
