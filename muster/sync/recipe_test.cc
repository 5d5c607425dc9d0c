#include "muster/sync/recipe.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace muster::sync {
namespace {

config::Job job_with(const std::string& strategy) {
  config::Job job;
  job.lanes = 12;
  job.sync.strategy = strategy;
  job.sync.replicas = 4;
  return job;
}

TEST(Recipe, RowsOfTheTable) {
  EXPECT_EQ(recipe_of(job_with("average").sync), (Recipe{1, 0, false}));
  EXPECT_EQ(recipe_of(job_with("bmuf").sync), (Recipe{1, 0.75, false}));
  EXPECT_EQ(recipe_of(job_with("diloco").sync), (Recipe{0.7, 0.9, true}));
  EXPECT_EQ(recipe_of(job_with("easgd").sync), (Recipe{0.9, 0, false, true}));
}

TEST(Recipe, TheJobsOwnFiguresComeFirst) {
  auto job = job_with("diloco");
  job.sync.outer = {.lr = 0.4, .momentum = 0};
  EXPECT_EQ(recipe_of(job.sync), (Recipe{0.4, 0, true}));
}

TEST(Recipe, ReplicasAreDealtOutInsteadOfLanes) {
  EXPECT_EQ(units_of(job_with("average")), 4);
  EXPECT_EQ(lanes_of(job_with("average"), std::array{3, 0}),
            (std::vector<int>{9, 10, 11, 0, 1, 2}));
}

TEST(Recipe, LockstepDealsOutLanesOrGroupsOfThem) {
  auto job = job_with("lockstep");
  EXPECT_EQ(units_of(job), 12);
  EXPECT_EQ(lanes_of(job, std::array{5, 7}), (std::vector<int>{5, 7}));
  job.sync.lane_groups = 6;
  EXPECT_EQ(units_of(job), 6);
  EXPECT_EQ(lanes_of(job, std::array{5}), (std::vector<int>{10, 11}));
}

TEST(Recipe, MomentsAreAveragedAndMomentumIsReset) {
  auto job = job_with("average");
  job.optimizer.kind = "sgd";
  EXPECT_FALSE(averages_inner_state(job));
  job.optimizer.kind = "adamw";
  EXPECT_TRUE(averages_inner_state(job));
  job.sync.inner_state = "reset";
  EXPECT_FALSE(averages_inner_state(job));
  job.optimizer.kind = "sgd";
  job.sync.inner_state = "average";
  EXPECT_TRUE(averages_inner_state(job));
}

}  // namespace
}  // namespace muster::sync
