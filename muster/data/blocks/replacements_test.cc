#include "muster/data/blocks/replacements.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/data/blocks/blocks_testing.h"

namespace muster::data {
namespace {

using ::testing::HasSubstr;
using testing::make_index;

constexpr uint64_t kSeed = 7;

// 60 blocks of 5 to 11 samples.
BlockIndex some_index() {
  std::vector<uint32_t> counts;
  for (uint32_t i = 0; i < 60; ++i) counts.push_back(5 + i % 7);
  return make_index(counts, 8, 10);
}

std::shared_ptr<const Replacements> replace(const BlockIndex& index,
                                            const std::vector<uint64_t>& damaged,
                                            uint64_t seed = kSeed) {
  auto made = Replacements::make(index, seed, damaged);
  EXPECT_TRUE(made.ok()) << made.error().message();
  return *std::move(made);
}

std::vector<uint64_t> all_samples(const BlockIndex& index) {
  std::vector<uint64_t> samples(index.samples());
  std::iota(samples.begin(), samples.end(), uint64_t{0});
  return samples;
}

TEST(ReplacementsTest, OnlySamplesOfDamagedBlocksChangeAndBecomeOnesOfTheSubstitute) {
  const auto index = some_index();
  const std::vector<uint64_t> damaged = {59, 3, 17, 18, 0};
  const auto replacements = replace(index, damaged);
  EXPECT_TRUE(std::ranges::equal(replacements->damaged(), damaged));
  const auto before = all_samples(index);
  auto after = before;
  uint64_t expected = 0;
  for (const uint64_t block : damaged) expected += index.blocks[block].count;
  EXPECT_EQ(replacements->apply(after), expected);
  for (size_t i = 0; i < before.size(); ++i) {
    const auto block = static_cast<uint32_t>(index.block_of(before[i]));
    const uint32_t other = replacements->instead_of(block);
    EXPECT_EQ(index.block_of(after[i]), other);
    if (std::ranges::find(damaged, block) == damaged.end()) {
      EXPECT_EQ(other, block);
      EXPECT_EQ(after[i], before[i]);
    } else {
      EXPECT_EQ(std::ranges::find(damaged, other), damaged.end());
    }
  }
}

TEST(ReplacementsTest, DependOnTheSetAndTheSeedAlone) {
  const auto index = some_index();
  auto expected = all_samples(index);
  replace(index, {40, 2, 31, 30})->apply(expected);
  for (const auto& same : {std::vector<uint64_t>{2, 30, 31, 40}, {31, 40, 30, 2}}) {
    auto samples = all_samples(index);
    replace(index, same)->apply(samples);
    EXPECT_EQ(samples, expected);
  }
  // The same samples in other pieces.
  auto pieces = all_samples(index);
  const auto replacements = replace(index, {40, 2, 31, 30});
  uint64_t replaced = 0;
  for (size_t i = 0; i < pieces.size(); i += 7) {
    replaced +=
        replacements->apply(std::span(pieces).subspan(i, std::min<size_t>(7, pieces.size() - i)));
  }
  EXPECT_EQ(pieces, expected);
  EXPECT_EQ(replaced, index.blocks[40].count + index.blocks[2].count + index.blocks[31].count +
                          index.blocks[30].count);
  auto other = all_samples(index);
  replace(index, {40, 2, 31, 30}, kSeed + 1)->apply(other);
  EXPECT_NE(other, expected);
}

// Of a block that was damaged before, the substitute changes only if it is damaged itself.
TEST(ReplacementsTest, FurtherDamageLeavesOtherSubstitutesAsTheyAre) {
  const auto index = some_index();
  const uint32_t first = replace(index, {20})->instead_of(20);
  for (uint64_t next = 0; next < index.blocks.size(); ++next) {
    if (next == 20) continue;
    const uint32_t now = replace(index, {20, next})->instead_of(20);
    if (next == first) {
      EXPECT_NE(now, first);
      EXPECT_NE(now, 20U);
    } else {
      EXPECT_EQ(now, first);
    }
  }
}

TEST(ReplacementsTest, SubstitutesAreSpreadOverTheData) {
  const auto index = make_index(std::vector<uint32_t>(1000, 4));
  std::set<uint32_t> others;
  for (uint64_t block = 0; block < 100; ++block) {
    others.insert(replace(index, {block})->instead_of(static_cast<uint32_t>(block)));
  }
  EXPECT_GT(others.size(), 80U);
  EXPECT_GT(*others.rbegin(), 900U);
  EXPECT_LT(*others.begin(), 100U);
}

// Part of the format of a run: these never change.
TEST(ReplacementsTest, AreAsTheyAlwaysWere) {
  const auto index = make_index(std::vector<uint32_t>(100, 3));
  const auto replacements = replace(index, {10, 50, 99, 72});
  EXPECT_EQ(replacements->instead_of(10), 5U);
  EXPECT_EQ(replacements->instead_of(50), 53U);
  EXPECT_EQ(replacements->instead_of(99), 26U);
  EXPECT_EQ(replacements->instead_of(72), 73U);  // the draw is 72, so the next one
  std::vector<uint64_t> samples = {30, 31, 32, 33};
  EXPECT_EQ(replacements->apply(samples), 3U);
  EXPECT_EQ(samples, (std::vector<uint64_t>{15, 16, 17, 33}));
}

TEST(ReplacementsTest, ManyAreRefusedAndNamed) {
  EXPECT_EQ(Replacements::most_of(1), 0U);
  EXPECT_EQ(Replacements::most_of(2), 1U);
  EXPECT_EQ(Replacements::most_of(60), 6U);
  EXPECT_EQ(Replacements::most_of(61), 7U);
  EXPECT_EQ(Replacements::most_of(1'000'000), Replacements::kMost);
  const auto index = some_index();
  EXPECT_TRUE(Replacements::make(index, kSeed, std::vector<uint64_t>{1, 2, 3, 4, 5, 6}).ok());
  const auto many = Replacements::make(index, kSeed, std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 42});
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().kind(), ErrorKind::kData);
  EXPECT_THAT(many.error().message(), HasSubstr("7 of 60 blocks are damaged, among them"));
  EXPECT_THAT(many.error().message(), HasSubstr("block 42 ('object-4', "));
  EXPECT_THAT(many.error().message(), HasSubstr("at most 6"));
  const auto all = Replacements::make(make_index({5}), kSeed, std::vector<uint64_t>{0});
  ASSERT_FALSE(all.ok());
  EXPECT_THAT(all.error().message(), HasSubstr("1 of 1 block is damaged"));
  const auto unknown = Replacements::make(index, kSeed, std::vector<uint64_t>{60});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().kind(), ErrorKind::kCheckpoint);
}

// Two blocks, one damaged: there is one choice.
TEST(ReplacementsTest, ASmallSubstituteIsUsedSeveralTimes) {
  const auto index = make_index({2, 5});
  const auto replacements = replace(index, {1});
  EXPECT_EQ(replacements->instead_of(1), 0U);
  auto samples = all_samples(index);
  EXPECT_EQ(replacements->apply(samples), 5U);
  EXPECT_EQ(samples, (std::vector<uint64_t>{0, 1, 0, 1, 0, 1, 0}));
}

}  // namespace
}  // namespace muster::data
