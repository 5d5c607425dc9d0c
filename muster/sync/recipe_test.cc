#include "muster/sync/recipe.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
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
  EXPECT_EQ(recipe_of(job_with("muloco").sync), (Recipe{0.7, 0.6, true}));
  EXPECT_EQ(recipe_of(job_with("easgd").sync), (Recipe{0.9, 0, false, true}));
  auto servers = job_with("server").sync;
  servers.mode = "easgd";
  EXPECT_EQ(recipe_of(servers), (Recipe{0.9, 0, false, true}));
  EXPECT_EQ(recipe_of(job_with("desloc").sync), (Recipe{1, 0, false}));
  EXPECT_EQ(steps_per_commit(job_with("desloc").sync), 96);
  EXPECT_TRUE(averages_inner_state(job_with("desloc")));
  EXPECT_EQ(kept_by_replicas("sparta"), std::vector<std::string>{"replica"});
}

TEST(Recipe, RoundsEndBeforeTheJobOnlyWithOneStrategy) {
  auto sync = job_with("local-then-lockstep").sync;
  EXPECT_EQ(periodic_steps(sync, 100), 90);
  sync.local = 0;
  EXPECT_EQ(periodic_steps(sync, 100), 0);
  EXPECT_EQ(periodic_steps(job_with("average").sync, 100), 100);
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

TEST(Recipe, EachReplicaGossipsWithOneOther) {
  for (const int replicas : {1, 2, 3, 8, 9}) {
    std::set<std::pair<int, int>> seen;
    for (int64_t round = 0; round < 200; ++round) {
      std::vector<int> count(static_cast<size_t>(replicas));
      for (const auto& [a, b] : pairs_of(7, round, replicas)) {
        ++count[static_cast<size_t>(a)];
        if (a != b) ++count[static_cast<size_t>(b)];
        seen.insert(std::minmax(a, b));
      }
      EXPECT_EQ(count, std::vector<int>(count.size(), 1));
    }
    // Sooner or later with every other one.
    const int alone = replicas % 2 == 0 ? 0 : replicas;
    EXPECT_EQ(seen.size(), static_cast<size_t>(replicas * (replicas - 1) / 2 + alone));
  }
  EXPECT_EQ(pairs_of(7, 3, 8), pairs_of(7, 3, 8));
  EXPECT_NE(pairs_of(7, 3, 8), pairs_of(7, 4, 8));
  EXPECT_NE(pairs_of(7, 3, 8), pairs_of(8, 3, 8));
}

TEST(Recipe, RoundsInWhichReplicasKeepSomethingAreCommittedTogether) {
  config::SyncOptions sync;
  sync.period = 5;
  sync.rounds = 3;
  sync.strategy = "diloco";
  EXPECT_EQ(steps_per_commit(sync), 5);
  sync.strategy = "gossip";
  EXPECT_EQ(steps_per_commit(sync), 15);
}

}  // namespace
}  // namespace muster::sync
