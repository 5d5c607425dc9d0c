#include "muster/train/audit/audit.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

TEST(LaneChecks, OneLaneInSoManyIsComputedTwice) {
  for (const auto& lanes : std::vector<std::vector<std::vector<int>>>{
           {{0, 1, 2, 3}, {4, 5, 6, 7}}, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, {{0}, {1}, {2}}}) {
    size_t all = 0;
    for (const auto& own : lanes) all += own.size();
    const int64_t interval = lane_check_interval(100, lanes);
    int64_t checked = 0;
    constexpr int64_t kSteps = 10000;
    for (int64_t step = 0; step < kSteps; step += interval) {
      checked += static_cast<int64_t>(lane_checks(step, interval, lanes).size());
    }
    EXPECT_NEAR(static_cast<double>(checked) / (kSteps * static_cast<double>(all)), 0.01, 0.0005);
  }
}

TEST(LaneChecks, InTurnEveryLaneAndEveryPair) {
  const std::vector<std::vector<int>> lanes = {{0, 3}, {1, 4}, {2, 5}, {}};
  std::set<int> seen;
  std::set<std::pair<int, int>> pairs;
  for (int64_t step = 0; step < 60; step += 10) {
    std::set<int> checkers;
    for (const auto& check : lane_checks(step, 10, lanes)) {
      EXPECT_NE(check.owner, check.checker);
      EXPECT_THAT(lanes[static_cast<size_t>(check.owner)], testing::Contains(check.lane));
      EXPECT_TRUE(checkers.insert(check.checker).second) << "checks two lanes";
      seen.insert(check.lane);
      pairs.emplace(check.owner, check.checker);
    }
    EXPECT_EQ(checkers.size(), 3U);
  }
  EXPECT_EQ(seen.size(), 6U);
  EXPECT_EQ(pairs.size(), 9U);
  EXPECT_THAT(lane_checks(0, 10, {{0, 1}}), IsEmpty());
}

TEST(Minority, IsWhatDiffersFromMoreThanHalf) {
  EXPECT_THAT(minority(std::vector<uint64_t>{7, 7, 8, 7}), Optional(ElementsAre(2)));
  EXPECT_THAT(minority(std::vector<uint64_t>{9, 7, 7}), Optional(ElementsAre(0)));
  EXPECT_THAT(minority(std::vector<uint64_t>{7, 8, 9, 7, 7}), Optional(ElementsAre(1, 2)));
  EXPECT_EQ(minority(std::vector<uint64_t>{7, 8}), std::nullopt);
  EXPECT_EQ(minority(std::vector<uint64_t>{7, 7, 8, 8}), std::nullopt);
}

TEST(WrongRanks, AreThoseThatDifferFromWhatMostComputeAgain) {
  const LaneCheck check{.lane = 5, .owner = 1, .checker = 2};
  // The owner's processor is faulty: its result differs each time.
  EXPECT_THAT(wrong_ranks({check, 8, 7, {7, 8, 7}}), Optional(ElementsAre(1)));
  // The checker's was wrong once.
  EXPECT_THAT(wrong_ranks({check, 7, 9, {7, 7, 7}}), Optional(ElementsAre(2)));
  // Two workers: one that was wrong once is known, one that always is wrong is not.
  const LaneCheck pair{.lane = 5, .owner = 0, .checker = 1};
  EXPECT_THAT(wrong_ranks({pair, 8, 7, {7, 7}}), Optional(ElementsAre(0)));
  EXPECT_EQ(wrong_ranks({pair, 8, 7, {8, 7}}), std::nullopt);
}

TEST(Trusted, IsWhatWasComparedBeforeTheFault) {
  Trusted trusted{.state = 100, .lanes = 250};
  EXPECT_EQ(trusted.before(120, 200, false), 100);  // all states were equal then
  EXPECT_EQ(trusted.before(500, 200, false), 300);  // every part was compared since
  EXPECT_EQ(trusted.before(500, 200, true), 250);
  EXPECT_EQ(trusted.before(260, 200, true), 100);
  EXPECT_EQ(Trusted{}.before(50, 200, true), 0);
  EXPECT_EQ(trusted.before(500, 0, false), 100);  // only whole states are compared
  EXPECT_EQ(trusted.before(500, 0, true), 250);
  trusted.sweep = 400;  // there was a single worker before
  EXPECT_EQ(trusted.before(500, 200, false), 100);
  EXPECT_EQ(trusted.before(600, 200, false), 400);
}

}  // namespace
}  // namespace muster::train
