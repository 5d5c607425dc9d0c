#include "muster/data/blocks/schedule.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"
#include "muster/data/blocks/blocks_testing.h"
#include "muster/data/blocks/strata.h"

namespace muster::data {
namespace {

using testing::make_index;

// Every sample that the lane reads from `step` on is covered by a use, and uses come by step.
void expect_covers(const SampleOrder& order, const BlockIndex& index, const BatchPlan& plan,
                   int lane, uint64_t step,
                   const std::shared_ptr<const Replacements>& replacements = nullptr) {
  const auto schedule = make_schedule(order, index, plan, lane, step, replacements);
  std::multimap<uint32_t, BlockUse> uses;
  uint64_t due = 0;
  while (const auto use = schedule->next()) {
    ASSERT_GE(use->due, due);
    ASSERT_GE(use->due, step);
    ASSERT_LT(use->due, plan.steps());
    ASSERT_GE(use->last, use->due);
    due = use->due;
    uses.emplace(use->block, *use);
  }
  for (uint64_t s = step; s < plan.steps(); ++s) {
    const Slice slice = lane_slice(plan, s, static_cast<uint64_t>(lane));
    std::vector<uint64_t> samples(slice.count);
    order.samples(slice, samples);
    if (replacements != nullptr) replacements->apply(samples);
    for (const uint64_t sample : samples) {
      const auto [begin, end] = uses.equal_range(static_cast<uint32_t>(index.block_of(sample)));
      ASSERT_TRUE(std::any_of(
          begin, end,
          [&](const auto& item) { return item.second.due <= s && s <= item.second.last; }))
          << "step " << s << ", sample " << sample;
    }
  }
}

TEST(ScheduleTest, CoversEverySampleThatIsRead) {
  for (uint64_t trial = 0; trial < 300; ++trial) {
    RandomStream random(trial, Purpose::kUser);
    std::vector<uint32_t> counts(1 + random.below(trial % 3 == 0 ? 3 : 60));
    for (auto& count : counts) count = static_cast<uint32_t>(1 + random.below(20));
    const auto index = std::make_shared<const BlockIndex>(make_index(counts));
    const uint64_t n = index->samples();
    BatchPlan plan{.batch = 1 + random.below(64), .lanes = 1 + random.below(8), .total = 3 * n};
    if (trial % 4 == 0) {  // resumed after a short step
      plan.first_step = 3;
      plan.first_sample = random.below(n);
    }
    const Strata strata(index, trial, plan.batch, plan.lanes,
                        {.tracks = 1 + random.below(6), .rows = 1 + random.below(5)});
    const FullOrder full(trial, n);
    const int lane = static_cast<int>(random.below(plan.lanes));
    const uint64_t step = std::min(plan.first_step + random.below(plan.steps()), plan.steps() - 1);
    SCOPED_TRACE(fmt::format("trial {}", trial));
    expect_covers(strata, *index, plan, lane, step);
    expect_covers(full, *index, plan, lane, step);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(ScheduleTest, CoversWhatIsReadInsteadOfDamagedBlocks) {
  std::vector<uint32_t> counts(60);
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = static_cast<uint32_t>(3 + i % 9);
  const auto index = std::make_shared<const BlockIndex>(make_index(counts));
  const BatchPlan plan{.batch = 24, .lanes = 3, .total = 2 * index->samples()};
  const Strata strata(index, 4, plan.batch, plan.lanes, StrataShape{.tracks = 2, .rows = 3});
  const FullOrder full(4, index->samples());
  const std::vector<uint64_t> damaged = {7, 8, 30, 59};
  const auto replacements = *Replacements::make(*index, 4, damaged);
  for (int lane = 0; lane < 3; ++lane) {
    expect_covers(strata, *index, plan, lane, 0, replacements);
    expect_covers(strata, *index, plan, lane, 11, replacements);
    expect_covers(full, *index, plan, lane, 0, replacements);
    const auto schedule = make_schedule(strata, *index, plan, lane, 0, replacements);
    while (const auto use = schedule->next()) {
      EXPECT_EQ(std::ranges::find(damaged, use->block), damaged.end());
    }
  }
}

// The reason for it: what is held is what is read, and not much longer.
TEST(ScheduleTest, HoldsAboutAsManyBlocksAsThereAreTracks) {
  const auto index =
      std::make_shared<const BlockIndex>(make_index(std::vector<uint32_t>(1000, 64)));
  const BatchPlan plan{.batch = 32, .lanes = 4, .total = 2 * index->samples()};
  const Strata strata(index, 3, plan.batch, plan.lanes, {.tracks = 8, .rows = 8});
  const auto schedule = make_schedule(strata, *index, plan, 2, 0);
  std::vector<int> held(plan.steps() + 1);
  int uses = 0;
  while (const auto use = schedule->next()) {
    ++uses;
    for (uint64_t s = use->due; s <= std::min(use->last, plan.steps()); ++s) ++held[s];
  }
  EXPECT_LE(std::ranges::max(held), 8 + 6);
  EXPECT_NEAR(uses, 2 * (250 + 8),
              8);  // a quarter of the blocks in each pass, and those that are cut
}

TEST(ScheduleTest, OfAnEndlessJobComesAsItIsAskedFor) {
  // Two samples, four lanes: a lane has none in most passes, and tracks that are always empty.
  const auto index = std::make_shared<const BlockIndex>(make_index({1, 1}));
  const BatchPlan plan{.batch = 4, .lanes = 4};
  const Strata strata(index, 3, plan.batch, plan.lanes, {.tracks = 3, .rows = 1});
  for (int lane = 0; lane < 4; ++lane) {
    const auto schedule = make_schedule(strata, *index, plan, lane, 7);
    for (uint64_t i = 0; i < 100; ++i) {
      const auto use = schedule->next();
      ASSERT_TRUE(use.has_value());
      EXPECT_EQ(use->due, 7 + i);
    }
  }
}

}  // namespace
}  // namespace muster::data
