#include "muster/train/step/team.h"

#include <atomic>
#include <cfenv>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "muster/base/float_mode.h"
#include "muster/base/thread.h"
#include "muster/model/share_work.h"

namespace muster::train {
namespace {

TEST(Team, EveryMemberRunsTheBodyOnceWithItsNumber) {
  for (int members : {1, 2, 3, 8}) {
    Team team(members);
    EXPECT_EQ(team.size(), members);
    for (int round = 0; round < 200; ++round) {
      std::vector<int> runs(static_cast<size_t>(members), 0);
      team.run([&](int member) { runs[static_cast<size_t>(member)] += 1; });
      EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(members), 1));
    }
  }
}

TEST(Team, EveryMemberHasItsNumberOfThreadsInsideOperations) {
  const int before = at::get_num_threads();
  Team team(3, 2);
  EXPECT_EQ(team.threads(), 6);
  team.run([&](int) { EXPECT_EQ(at::get_num_threads(), 2); });
  at::set_num_threads(before);
}

// The gradient of table[index] is added up by all threads, if it is large.
TEST(Team, HelpersAddToTheSameRowsInOneOrder) {
  const int before = at::get_num_threads();
  constexpr int64_t kRows = 50;
  constexpr int64_t kLookups = 40'000;
  const auto index = torch::arange(kLookups).mul(7919).remainder(kRows);
  const auto gradient = torch::arange(kLookups * 33).mul(0.37).sin().view({kLookups, 33});
  const auto added = [&] {
    auto table = torch::zeros({kRows, 33}).requires_grad_();
    table.index({index}).backward(gradient);
    return table.grad();
  };
  at::set_num_threads(1);
  const auto expected = added();
  Team team(1, 2);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_TRUE(at::globalContext().deterministicAlgorithmsWarnOnly());
  EXPECT_FALSE(at::globalContext().deterministicFillUninitializedMemory());
  team.run([&](int) {
    for (int round = 0; round < 20; ++round) EXPECT_TRUE(added().equal(expected)) << round;
  });
  at::set_num_threads(before);
}

TEST(Team, AllItsThreadsTakeSubnormalsToBeZero) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  Thread("owner", [] {
    std::atomic<int> threads{0};
    std::fesetenv(FE_DFL_ENV);  // whatever the thread had that started this one
    // Helpers that are older than the team.
    model::share_work(2, [&](int64_t, int64_t) { EXPECT_FALSE(flushes_subnormals()); });
    Team team(3, 2);
    team.run([&](int) {
      model::share_work(2, [&](int64_t first, int64_t last) {
        EXPECT_TRUE(flushes_subnormals());
        threads += static_cast<int>(last - first);
      });
    });
    EXPECT_EQ(threads, 6);
  }).join();
  at::set_num_threads(before);
}

TEST(Team, ForEachVisitsEverythingOnce) {
  const int before = at::get_num_threads();
  for (const int threads_per_member : {1, 2}) {
    Team team(3, threads_per_member);
    for (size_t count : {0, 1, 5, 1000}) {
      for (size_t grain : {1, 7, 5000}) {
        std::vector<std::atomic<int>> visits(count);
        std::vector<std::atomic<int>> busy(static_cast<size_t>(team.threads()));
        team.for_each(count, grain, [&](int thread, size_t i) {
          EXPECT_EQ(busy[static_cast<size_t>(thread)]++, 0);
          ++visits[i];
          --busy[static_cast<size_t>(thread)];
        });
        for (const auto& v : visits) EXPECT_EQ(v, 1);
      }
    }
  }
  at::set_num_threads(before);
}

TEST(Team, CanBeDroppedWithoutEverRunning) { const Team team(4); }

}  // namespace
}  // namespace muster::train
