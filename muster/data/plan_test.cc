#include "muster/data/plan.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "muster/data/order.h"

namespace muster::data {
namespace {

// Walks through all steps and lanes and counts how often each pass uses each sample.
void expect_every_sample_once_per_pass(uint64_t n, uint64_t batch, uint64_t lanes,
                                       uint64_t passes) {
  const BatchPlan plan{.batch = batch, .lanes = lanes, .total = n * passes};
  const Order order(n + batch, n);
  std::vector<int> used(n * passes);
  uint64_t next = 0;
  for (uint64_t step = 0; step < plan.steps(); ++step) {
    for (uint64_t lane = 0; lane < lanes; ++lane) {
      const Slice slice = lane_slice(plan, step, lane);
      ASSERT_EQ(slice.first, next) << "lanes follow each other without gaps";
      ASSERT_LE(slice.count, plan.lane_capacity());
      next += slice.count;
      for (uint64_t p = slice.first; p < slice.first + slice.count; ++p) {
        ++used[p / n * n + order.at(p / n, p % n)];
      }
    }
  }
  ASSERT_EQ(next, plan.total);
  for (const int times : used) ASSERT_EQ(times, 1) << n << " " << batch << " " << lanes;
}

TEST(PlanTest, EverySampleOncePerPass) {
  for (const uint64_t n : {1U, 2U, 7U, 64U, 100U, 257U}) {
    for (const uint64_t batch : {1U, 2U, 8U, 12U, 100U, 300U}) {
      for (const uint64_t lanes : {1U, 2U, 3U, 8U, 64U}) {
        for (const uint64_t passes : {1U, 2U, 5U}) {
          expect_every_sample_once_per_pass(n, batch, lanes, passes);
        }
      }
    }
  }
}

TEST(PlanTest, LanesDifferByOneSampleAtMost) {
  for (uint64_t batch = 1; batch < 70; ++batch) {
    for (uint64_t lanes = 1; lanes <= batch; ++lanes) {
      const BatchPlan plan{.batch = batch, .lanes = lanes};
      for (uint64_t lane = 0; lane < lanes; ++lane) {
        const uint64_t count = lane_slice(plan, 3, lane).count;
        EXPECT_GE(count, batch / lanes);
        EXPECT_LE(count, plan.lane_capacity());
      }
    }
  }
}

TEST(PlanTest, BatchesGoAcrossThePassBorder) {
  const BatchPlan plan{.batch = 8, .lanes = 2, .total = 20};
  EXPECT_EQ(plan.steps(), 3U);
  EXPECT_EQ(lane_slice(plan, 1, 0), (Slice{8, 4}));
  EXPECT_EQ(lane_slice(plan, 1, 1), (Slice{12, 4}));
  EXPECT_EQ(step_slice(plan, 2), (Slice{16, 4})) << "only the last step is short";
  EXPECT_EQ(lane_slice(plan, 2, 0), (Slice{16, 4}));
  EXPECT_EQ(lane_slice(plan, 2, 1), (Slice{20, 0})) << "and leaves the later lanes with nothing";
}

TEST(PlanTest, TheFewestSamplesOfALane) {
  const BatchPlan plan{
      .batch = 10, .lanes = 4, .total = 18};  // lanes of 2, 3, 2, 3; then 2, 3, 2, 1
  EXPECT_EQ(fewest_lane_samples(plan, 0), 2U);
  EXPECT_EQ(fewest_lane_samples(plan, 1), 1U);
  EXPECT_EQ(fewest_lane_samples({.batch = 10, .lanes = 4, .total = 15}, 1), 2U)
      << "a lane without any does not count";
}

TEST(PlanTest, NothingPastTheEnd) {
  const BatchPlan plan{.batch = 8, .lanes = 2, .total = 16};
  EXPECT_EQ(plan.steps(), 2U);
  EXPECT_EQ(step_slice(plan, 2).count, 0U);
  EXPECT_EQ(lane_slice(plan, 1'000'000'000'000, 1).count, 0U);
  EXPECT_EQ((BatchPlan{.batch = 8, .lanes = 2, .total = 0}).steps(), 0U);
}

TEST(PlanTest, StepsMayEndBeforeTheSamples) {
  const BatchPlan plan{.batch = 8, .lanes = 2, .total = 100, .most_steps = 3};
  EXPECT_EQ(plan.steps(), 3U);
  EXPECT_EQ(step_slice(plan, 2), (Slice{16, 8}));
  EXPECT_EQ(step_slice(plan, 3).count, 0U);
}

// After a short step, of 4 samples, the next one begins at position 20 and not at 24.
TEST(PlanTest, GoesOnWhereAShortStepEnded) {
  const BatchPlan before{.batch = 8, .lanes = 2, .total = 20};
  ASSERT_EQ(before.steps(), 3U);
  const BatchPlan plan{.batch = 8, .lanes = 2, .total = 40, .first_step = 3, .first_sample = 20};
  EXPECT_EQ(plan.steps(), 6U);
  EXPECT_EQ(step_slice(plan, 3), (Slice{20, 8}));
  EXPECT_EQ(lane_slice(plan, 4, 1), (Slice{32, 4}));
  EXPECT_EQ(step_slice(plan, 5), (Slice{36, 4}));
  EXPECT_EQ(step_slice(plan, 2).count, 0U) << "what came before is not this plan's";
  // A job that asks for less than it has done already has nothing left to do.
  EXPECT_EQ((BatchPlan{.batch = 8, .total = 16, .first_step = 3, .first_sample = 20}).steps(), 3U);
  EXPECT_EQ((BatchPlan{.batch = 8, .most_steps = 2, .first_step = 3, .first_sample = 20}).steps(),
            3U);
}

// However far a job is, it ends after the same step.
TEST(PlanTest, TheEndDoesNotDependOnWhereItIsCountedFrom) {
  BatchPlan plan{.batch = 7, .lanes = 3, .total = 100, .first_step = 4, .first_sample = 25};
  const uint64_t steps = plan.steps();
  while (plan.first_step < steps) {
    const Slice slice = step_slice(plan, plan.first_step);
    ASSERT_EQ(slice.first, plan.first_sample);
    plan.first_sample += slice.count;
    ++plan.first_step;
    ASSERT_EQ(plan.steps(), steps);
  }
  EXPECT_EQ(plan.first_sample, 100U);
}

TEST(PlanTest, AnUnlimitedStreamDoesNotOverflow) {
  const BatchPlan plan{.batch = uint64_t{1} << 40, .lanes = 1 << 20};
  const uint64_t last = plan.steps() - 1;
  EXPECT_EQ(step_slice(plan, last).first + step_slice(plan, last).count, BatchPlan::kUnlimited);
  EXPECT_EQ(lane_slice(plan, 5, (1 << 20) - 1).count, uint64_t{1} << 20);
}

}  // namespace
}  // namespace muster::data
