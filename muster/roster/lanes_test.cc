#include "muster/roster/lanes.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/random.h"

namespace muster::roster {
namespace {

using testing::ElementsAre;

LaneWorker worker(double lane_seconds, int32_t lane_threads = 1, std::vector<int32_t> lanes = {}) {
  return {.lanes = std::move(lanes), .lane_seconds = lane_seconds, .lane_threads = lane_threads};
}

std::vector<size_t> counts(const LanePlan& plan) {
  std::vector<size_t> result;
  for (const auto& lanes : plan.lanes) result.push_back(lanes.size());
  return result;
}

// The same workers with the lanes the plan gives them.
std::vector<LaneWorker> after(std::vector<LaneWorker> workers, const LanePlan& plan) {
  for (size_t i = 0; i < workers.size(); ++i) workers[i].lanes = plan.lanes[i];
  return workers;
}

TEST(Lanes, EqualWorkersGetEqualShares) {
  const std::vector<LaneWorker> workers(4);
  const LanePlan plan = plan_lanes(workers, {.lanes = 8});
  EXPECT_THAT(counts(plan), ElementsAre(2, 2, 2, 2));
  EXPECT_EQ(plan.orphans, 8);
  EXPECT_EQ(plan.moves, 0);
}

TEST(Lanes, OneFourTimesSlowerDoesNotHoldTheOthersBack) {
  std::vector<LaneWorker> workers(4, worker(1));
  workers[3].lane_seconds = 4;
  for (const int32_t lanes : {13, 26, 52}) {
    const LanePlan plan = plan_lanes(workers, {.lanes = lanes});
    // The sum of the four speeds is 3.25 lanes a second.
    EXPECT_DOUBLE_EQ(plan.step_seconds, lanes / 3.25) << lanes;
    EXPECT_EQ(plan.lanes[3].size(), static_cast<size_t>(lanes) / 13);
  }
  // Largest remainders would give it one of 8 lanes for its 0.6, and the step would take 4 s.
  const LanePlan plan = plan_lanes(workers, {.lanes = 8});
  EXPECT_THAT(counts(plan), ElementsAre(3, 3, 2, 0));
  EXPECT_DOUBLE_EQ(plan.step_seconds, 3);
}

TEST(Lanes, SlotsWorkSideBySide) {
  const std::vector<LaneWorker> workers = {worker(1, 4), worker(1, 1)};
  const LanePlan plan = plan_lanes(workers, {.lanes = 10});
  EXPECT_THAT(counts(plan), ElementsAre(8, 2));
  EXPECT_DOUBLE_EQ(plan.step_seconds, 2);
}

TEST(Lanes, WhenOneDiesOnlyItsLanesMove) {
  std::vector<LaneWorker> workers(4, worker(1));
  workers = after(workers, plan_lanes(workers, {.lanes = 16}));
  const auto kept = workers[0].lanes;
  workers.erase(workers.begin() + 2);
  const LanePlan plan = plan_lanes(workers, {.lanes = 16});
  EXPECT_EQ(plan.orphans, 4);
  EXPECT_EQ(plan.moves, 0);
  EXPECT_TRUE(std::ranges::includes(plan.lanes[0], kept));
  EXPECT_DOUBLE_EQ(plan.step_seconds, 6);
}

TEST(Lanes, AJoinerTakesItsShareAndNoMore) {
  std::vector<LaneWorker> workers(3, worker(1));
  workers = after(workers, plan_lanes(workers, {.lanes = 12}));
  workers.push_back(worker(1));
  const LanePlan plan = plan_lanes(workers, {.lanes = 12});
  EXPECT_THAT(counts(plan), ElementsAre(3, 3, 3, 3));
  EXPECT_EQ(plan.moves, 3);
}

TEST(Lanes, AJoinerThatCannotShortenTheStepGetsNothing) {
  std::vector<LaneWorker> workers(8, worker(1));
  workers = after(workers, plan_lanes(workers, {.lanes = 16}));
  workers.push_back(worker(1));  // 16 lanes on 9 workers still take two rounds
  const LanePlan plan = plan_lanes(workers, {.lanes = 16});
  EXPECT_EQ(plan.moves, 0);
  EXPECT_TRUE(plan.lanes[8].empty());
}

TEST(Lanes, SmallDifferencesMoveNothing) {
  std::vector<LaneWorker> workers(4, worker(1));
  workers = after(workers, plan_lanes(workers, {.lanes = 64}));
  workers[1].lane_seconds = 1.09;
  EXPECT_EQ(plan_lanes(workers, {.lanes = 64}).moves, 0);
  workers[1].lane_seconds = 1.3;
  const LanePlan plan = plan_lanes(workers, {.lanes = 64});
  EXPECT_GT(plan.moves, 0);
  EXPECT_LT(plan.step_seconds, plan.before_seconds * 0.9);
  // And then it rests.
  EXPECT_EQ(plan_lanes(after(workers, plan), {.lanes = 64}).moves, 0);
}

TEST(Lanes, AnUnknownSpeedIsTakenAsTheMedian) {
  const std::vector<LaneWorker> workers = {worker(2), worker(0), worker(2), worker(20)};
  EXPECT_THAT(counts(plan_lanes(workers, {.lanes = 9})), ElementsAre(3, 3, 3, 0));
}

TEST(Lanes, NonsenseInThePresentStateIsMended) {
  const std::vector<LaneWorker> workers = {worker(0, 1, {0, 1, 1, 99}), worker(0, 1, {1, -1})};
  const LanePlan plan = plan_lanes(workers, {.lanes = 4});
  EXPECT_THAT(counts(plan), ElementsAre(2, 2));
}

TEST(Lanes, NoLanesOrNoWorkers) {
  EXPECT_TRUE(plan_lanes({}, {.lanes = 0}).lanes.empty());
  EXPECT_TRUE(plan_lanes(std::vector<LaneWorker>(1), {.lanes = 0}).lanes[0].empty());
}

// The shortest step by trying every split.
double best_by_force(const std::vector<LaneWorker>& workers, size_t lanes) {
  std::function<double(size_t, size_t)> best = [&](size_t from, size_t left) -> double {
    const LaneWorker& worker = workers[from];
    if (from + 1 == workers.size())
      return lanes_seconds(left, worker.lane_threads, worker.lane_seconds);
    double result = 1e300;
    for (size_t own = 0; own <= left; ++own) {
      result =
          std::min(result, std::max(lanes_seconds(own, worker.lane_threads, worker.lane_seconds),
                                    best(from + 1, left - own)));
    }
    return result;
  };
  return best(0, lanes);
}

TEST(Lanes, PropertiesHoldForRandomWorkersAndChanges) {
  RandomStream random(3, Purpose::kUser);
  for (int round = 0; round < 2000; ++round) {
    const auto lanes = static_cast<int32_t>(1 + random.below(24));
    std::vector<LaneWorker> workers(1 + random.below(4));
    for (LaneWorker& worker : workers) {
      worker.lane_seconds = 0.1 + 0.1 * static_cast<double>(random.below(40));
      worker.lane_threads = static_cast<int32_t>(1 + random.below(3));
    }
    // Something to start from: a sensible plan, then other speeds, and one who went.
    workers = after(workers, plan_lanes(workers, {.lanes = lanes}));
    for (LaneWorker& worker : workers) {
      if (random.below(2) == 0) worker.lane_seconds *= 0.5 + random.uniform() * 3;
    }
    if (workers.size() > 1 && random.below(2) == 0) workers.pop_back();
    const LanePlan plan = plan_lanes(workers, {.lanes = lanes, .gain = 0.1});

    std::vector<int32_t> all;
    for (const auto& own : plan.lanes) {
      ASSERT_TRUE(std::ranges::is_sorted(own));
      all.insert(all.end(), own.begin(), own.end());
    }
    std::ranges::sort(all);
    std::vector<int32_t> expected(static_cast<size_t>(lanes));
    std::iota(expected.begin(), expected.end(), 0);
    ASSERT_EQ(all, expected) << "every lane exactly once";

    int32_t moved = 0;
    for (size_t i = 0; i < workers.size(); ++i) {
      for (const int32_t lane : workers[i].lanes) {
        moved += std::ranges::binary_search(plan.lanes[i], lane) ? 0 : 1;
      }
    }
    ASSERT_EQ(plan.moves, moved);
    const double best = best_by_force(workers, static_cast<size_t>(lanes));
    if (plan.moves > 0) {
      ASSERT_LT(plan.step_seconds, plan.before_seconds * 0.9) << "moves are worth it";
      ASSERT_NEAR(plan.step_seconds, best, 1e-9) << "and then it is the shortest step";
      // No plan that short moves fewer: each lane above a worker's room has to go.
      int32_t needed = 0;
      for (const LaneWorker& worker : workers) {
        size_t room = worker.lanes.size();
        while (lanes_seconds(room, worker.lane_threads, worker.lane_seconds) > best + 1e-9) --room;
        needed += static_cast<int32_t>(worker.lanes.size() - room);
      }
      ASSERT_EQ(plan.moves, needed);
    } else {
      ASSERT_GE(best, plan.before_seconds * 0.9 - 1e-9) << "nothing worth moving was left";
    }
  }
}

TEST(Lanes, TheEstimateFollowsALastingChangeAndForgivesASpike) {
  double estimate = smooth(0, 1.0);
  EXPECT_DOUBLE_EQ(estimate, 1.0);
  estimate = smooth(estimate, 100.0);
  EXPECT_LE(estimate, 1.25);
  for (int i = 0; i < 20; ++i) estimate = smooth(estimate, 4.0);
  EXPECT_NEAR(estimate, 4.0, 0.1);
  EXPECT_DOUBLE_EQ(smooth(estimate, 0), estimate);
}

}  // namespace
}  // namespace muster::roster
