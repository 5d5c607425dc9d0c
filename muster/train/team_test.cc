#include "muster/train/team.h"

#include <atomic>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace muster::train {
namespace {

TEST(Team, EveryMemberRunsTheBodyOnceWithItsNumber) {
  for (int members : {1, 2, 3, 8}) {
    Team team(members, {});
    EXPECT_EQ(team.size(), members);
    for (int round = 0; round < 200; ++round) {
      std::vector<int> runs(static_cast<size_t>(members), 0);
      team.run([&](int member) { runs[static_cast<size_t>(member)] += 1; });
      EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(members), 1));
    }
  }
}

TEST(Team, PreparesEachMemberOnItsOwnThreadBeforeItsFirstWork) {
  std::vector<std::thread::id> prepared(4);
  Team team(
      4, [&](int member) { prepared[static_cast<size_t>(member)] = std::this_thread::get_id(); });
  team.run([&](int member) {
    EXPECT_EQ(prepared[static_cast<size_t>(member)], std::this_thread::get_id());
  });
  EXPECT_EQ(std::set(prepared.begin(), prepared.end()).size(), 4);
}

TEST(Team, ForEachVisitsEverythingOnce) {
  Team team(3, {});
  for (size_t count : {0, 1, 5, 1000}) {
    for (size_t grain : {1, 7, 5000}) {
      std::vector<std::atomic<int>> visits(count);
      team.for_each(count, grain, [&](int, size_t i) { ++visits[i]; });
      for (const auto& v : visits) EXPECT_EQ(v, 1);
    }
  }
}

TEST(Team, CanBeDroppedWithoutEverRunning) { Team team(4, {}); }

}  // namespace
}  // namespace muster::train
