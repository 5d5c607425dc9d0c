// How groups fail, over both backends: in time, for everybody, with names.
#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/comm/group_testing.h"

namespace muster::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Far above what it takes (tens of milliseconds), far below the deadline that would end it else.
constexpr auto kSoon = seconds(5);
constexpr OpOptions kPatient{.timeout = seconds(60)};

std::string message(const Status& status) {
  return status.ok() ? "good" : status.error().message();
}

bool eventually(const std::function<bool()>& condition) {
  const auto until = steady_clock::now() + kSoon;
  while (!condition()) {
    if (steady_clock::now() > until) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

class GroupFailureTest : public ::testing::TestWithParam<Backend> {
 protected:
  std::vector<std::unique_ptr<Group>> make(int size) { return make_groups(GetParam(), size); }
};

TEST_P(GroupFailureTest, AbortWakesABlockedOperationAndTellsTheOthers) {
  auto groups = make(3);
  std::vector<int32_t> small(10), large(5'000'000);
  for (auto* data : {&small, &large}) {
    groups = make(3);
    std::atomic<bool> began{false};
    Status status;
    steady_clock::time_point ended;
    std::thread blocked([&] {
      began = true;
      status = groups[0]->allreduce_sum(std::span(*data), kPatient);
      ended = steady_clock::now();
    });
    ASSERT_TRUE(eventually([&] { return began.load(); }));
    std::this_thread::sleep_for(milliseconds(20));  // so that it is likely to wait already
    const auto before = steady_clock::now();
    groups[0]->abort("the roster has changed");
    const auto aborted = steady_clock::now();
    blocked.join();
    EXPECT_LT(aborted - before, kSoon);
    EXPECT_LT(ended - before, kSoon);
    EXPECT_THAT(message(status),
                AllOf(HasSubstr("allreduce #0"), HasSubstr("rank 0 (worker-a) aborted the group"),
                      HasSubstr("the roster has changed")));
    for (int r = 0; r < 3; ++r) {
      Group& g = *groups[static_cast<size_t>(r)];
      ASSERT_TRUE(eventually([&] { return g.failed(); })) << r;
      EXPECT_EQ(g.failure()->kind, FailureKind::kAborted);
      EXPECT_EQ(g.failure()->origin, 0);
      EXPECT_FALSE(g.barrier(kPatient).ok());
    }
  }
}

TEST_P(GroupFailureTest, AbortAtAnyMomentEndsEverythingOnEverybody) {
  std::mt19937 random(7);
  for (int round = 0; round < 15; ++round) {
    auto groups = make(3);
    const int who = static_cast<int>(random() % 3);
    const auto when = std::chrono::microseconds(random() % 20'000);
    std::thread killer([&] {
      std::this_thread::sleep_for(when);
      groups[static_cast<size_t>(who)]->abort("a test");
    });
    on_all(3, [&](int r) {
      // Freed after each call: the sanitizers see it if somebody still writes.
      while (true) {
        std::vector<int32_t> data(100'000 * static_cast<size_t>(round % 4) + 10, 1);
        if (!groups[static_cast<size_t>(r)]->allreduce_sum(std::span(data), kPatient).ok()) return;
        ASSERT_EQ(data[9], 3);
      }
    });
    killer.join();
    for (auto& g : groups) {
      EXPECT_EQ(g->failure()->kind, FailureKind::kAborted);
      // At sites, one that heard of it where `who` is no member may be faster to tell the others.
      if (GetParam() != Backend::kSites) {
        EXPECT_EQ(g->failure()->origin, who);
      }
    }
  }
}

TEST_P(GroupFailureTest, AMissingMemberIsNamedAtTheDeadline) {
  const OpOptions soon{.timeout = milliseconds(50)};
  using Call = std::function<Status(Group&)>;
  std::vector<int32_t> ints(9), more(3'000'000);
  std::vector<uint8_t> bytes(9);
  const std::vector<std::pair<std::string, Call>> calls = {
      {"allreduce #0 of 9 int32", [&](Group& g) { return g.allreduce_sum(std::span(ints), soon); }},
      {"of 3000000 int32", [&](Group& g) { return g.allreduce_sum(std::span(more), soon); }},
      {"of 9 uint8", [&](Group& g) { return g.allreduce_max(std::span(bytes), soon); }},
      {"reduce_scatter", [&](Group& g) { return g.reduce_scatter_sum(std::span(ints), soon); }},
      {"allgather", [&](Group& g) { return g.allgather(std::span(ints), soon); }},
      {"from rank 1", [&](Group& g) { return g.broadcast(std::span(ints), 1, soon); }},
      {"barrier", [&](Group& g) { return g.barrier(soon); }},
      {"recv", [&](Group& g) { return g.recv(std::span(ints), 1, soon); }},
  };
  for (const auto& [words, call] : calls) {
    auto groups = make(2);
    const auto before = steady_clock::now();
    const Status status = call(*groups[0]);
    EXPECT_GE(steady_clock::now() - before, milliseconds(50)) << words;
    EXPECT_LT(steady_clock::now() - before, kSoon) << words;
    EXPECT_THAT(message(status), AllOf(HasSubstr(words), HasSubstr("rank 1 (worker-b)"))) << words;
    EXPECT_EQ(groups[0]->failure()->kind, FailureKind::kDeadline) << words;
    EXPECT_EQ(groups[0]->failure()->origin, 1) << words;
  }
}

TEST_P(GroupFailureTest, MembersThatDisagreeAreTold) {
  std::vector<int32_t> ten(10), eleven(11), many(1'000'000), more(1'000'001);
  using Call = std::function<Status(Group&)>;
  const Call sum_ten = [&](Group& g) { return g.allreduce_sum(std::span(ten), kPatient); };
  const std::vector<std::pair<Call, Call>> pairs = {
      {sum_ten, [&](Group& g) { return g.allreduce_sum(std::span(eleven), kPatient); }},
      {sum_ten, [&](Group& g) { return g.allgather(std::span(eleven), kPatient); }},
      {sum_ten, [&](Group& g) { return g.barrier(kPatient); }},
      {[&](Group& g) { return g.allreduce_sum(std::span(many), kPatient); },
       [&](Group& g) { return g.allreduce_sum(std::span(more), kPatient); }},
      {sum_ten, [&](Group& g) { return g.allreduce_sum(std::span(more), kPatient); }},
      {[&](Group& g) { return g.send(std::span(many), 1, kPatient); },
       [&](Group& g) { return g.recv(std::span(more), 0, kPatient); }},
      {[&](Group& g) { return g.send(std::span(more), 1, kPatient); },
       [&](Group& g) { return g.recv(std::span(ten), 0, kPatient); }},
  };
  for (size_t i = 0; i < pairs.size(); ++i) {
    auto groups = make(2);
    Status a, b;
    const auto before = steady_clock::now();
    on_all(2, [&](int r) {
      (r == 0 ? a : b) = r == 0 ? pairs[i].first(*groups[0]) : pairs[i].second(*groups[1]);
    });
    EXPECT_LT(steady_clock::now() - before, kSoon) << i;
    EXPECT_TRUE(!a.ok() || !b.ok()) << i;
    ASSERT_TRUE(eventually([&] { return groups[0]->failed() && groups[1]->failed(); })) << i;
    EXPECT_EQ(groups[1]->failure()->kind, FailureKind::kDisagreement) << i << message(b);
    EXPECT_THAT(groups[1]->failure()->message, HasSubstr(" where ")) << i;
  }
}

TEST_P(GroupFailureTest, WhoeverWaitsForOneThatHasLeftIsTold) {
  auto groups = make(3);
  groups[1].reset();
  std::vector<int32_t> data(10), other(10);
  const auto before = steady_clock::now();
  // Rank 2 is at the site of rank 0, which waits for it first.
  std::thread third([&] { (void)groups[2]->allreduce_sum(std::span(other), kPatient); });
  const Status status = groups[0]->allreduce_sum(std::span(data), kPatient);
  third.join();
  EXPECT_LT(steady_clock::now() - before, kSoon);
  EXPECT_THAT(message(status), HasSubstr("rank 1 (worker-b) left the group"));
  EXPECT_EQ(groups[0]->failure()->kind, FailureKind::kPeerLost);
  EXPECT_EQ(groups[0]->failure()->origin, 1);
}

// Whoever is done first leaves first; that must not spoil the last operation for the others.
TEST_P(GroupFailureTest, LeavingAfterTheLastOperationHurtsNobody) {
  for (int round = 0; round < 25; ++round) {
    auto groups = make(3);
    on_all(3, [&](int r) {
      auto& g = groups[static_cast<size_t>(r)];
      std::vector<int32_t> data(round % 2 == 0 ? 10 : 300'000, r);
      Status status = g->allreduce_sum(std::span(data), kPatient);
      EXPECT_EQ(message(status), "good");
      EXPECT_EQ(data.back(), 3);
      g.reset();
    });
  }
}

TEST_P(GroupFailureTest, AHundredGroupsLiveInOneProcess) {
  const auto count = [](const char* folder) {
    const std::filesystem::directory_iterator all(folder);
    return std::distance(begin(all), end(all));
  };
  // A sanitizer starts a thread of its own along with the first one.
  std::thread([] {}).join();
  const auto threads = count("/proc/self/task");
  const auto files = count("/proc/self/fd");
  {
    std::shared_ptr<GlooDevice> device;
    if (GetParam() != Backend::kLocal) device = *GlooDevice::open("127.0.0.1");
    std::vector<std::vector<std::unique_ptr<Group>>> all;
    for (int i = 0; i < 50; ++i) all.push_back(make_groups(GetParam(), 2, device));
    // The even ones by rank, the odd ones backwards: no order between groups is needed.
    on_all(2, [&](int r) {
      for (auto& groups : all) {
        std::vector<int32_t> data(1000, r + 1);
        EXPECT_EQ(message(groups[static_cast<size_t>(r)]->allreduce_sum(std::span(data))), "good");
        EXPECT_EQ(data[999], 3);
      }
    });
    // The failure of one is nobody else's.
    all[7][0]->abort("only this one");
    on_all(2, [&](int r) {
      for (size_t i = 8; i < all.size(); ++i) {
        EXPECT_EQ(message(all[i][static_cast<size_t>(r)]->barrier()), "good");
      }
    });
  }
  EXPECT_EQ(count("/proc/self/task"), threads);
  EXPECT_EQ(count("/proc/self/fd"), files);
}

TEST_P(GroupFailureTest, TwoCollectivesAtOnceOnOneTagAreABug) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        auto groups = make(2);
        std::thread first([&] { (void)groups[0]->barrier(); });
        std::this_thread::sleep_for(milliseconds(100));
        (void)groups[0]->barrier();
      },
      "two collectives at the same time");
}

INSTANTIATE_TEST_SUITE_P(Backends, GroupFailureTest,
                         ::testing::Values(Backend::kLocal, Backend::kGloo, Backend::kShared,
                                           Backend::kHosts, Backend::kSites),
                         [](const auto& info) { return backend_name(info.param); });

// Ranks 0 and 2 are at one site, 1 and 3 at the other; 0 and 1 lead.
TEST(SitesFailureTest, TheFailureOfOneOfItsGroupsEndsTheWhole) {
  const auto device = *GlooDevice::open("127.0.0.1");
  using Choose = std::function<Group*(const TwoLevels&)>;
  const std::vector<Choose> choices = {[](const TwoLevels& l) { return l.all.get(); },
                                       [](const TwoLevels& l) { return l.site.get(); },
                                       [](const TwoLevels& l) { return l.leaders.get(); }};
  for (size_t choice = 0; choice < choices.size(); ++choice) {
    auto levels = make_levels(4, device);
    Group* const inner = choices[choice](levels[1]);
    std::vector<std::unique_ptr<Group>> groups;
    for (auto& own : levels) groups.push_back(make_two_level_group(std::move(own)));
    std::vector<Status> ends(4);
    const auto before = steady_clock::now();
    // Rank 1 computes. The others wait for it: rank 3 at its site, 0 as a leader, 2 for 0.
    on_all(4, [&](int r) {
      if (r == 1) {
        std::this_thread::sleep_for(milliseconds(20));
        inner->end({.kind = FailureKind::kPeerLost, .origin = 0, .message = "rank 0 has gone"});
        return;
      }
      std::vector<int32_t> data(10);
      ends[static_cast<size_t>(r)] =
          groups[static_cast<size_t>(r)]->allreduce_sum(std::span(data), kPatient);
    });
    EXPECT_LT(steady_clock::now() - before, kSoon) << choice;
    ASSERT_TRUE(eventually([&] { return groups[1]->failed(); })) << choice;
    for (const int r : {0, 2, 3}) {
      const Group& g = *groups[static_cast<size_t>(r)];
      EXPECT_THAT(message(ends[static_cast<size_t>(r)]), HasSubstr("rank 0 has gone")) << choice;
      EXPECT_EQ(g.failure()->kind, FailureKind::kPeerLost) << choice << r;
    }
  }
}

// Ranks 0 and 2 are on one host, 1 and 3 on the other.
TEST(HostsFailureTest, MembersThatDisagreeAreTold) {
  using Call = std::function<Status(Group&)>;
  const std::vector<Call> calls = {
      [](Group& g) {
        std::vector<int32_t> data(10);
        return g.allreduce_sum(std::span(data), kPatient);
      },
      [](Group& g) {
        std::vector<int32_t> data(11);
        return g.allreduce_sum(std::span(data), kPatient);
      },
      [](Group& g) {
        std::vector<int32_t> data(1'000'000);
        return g.allreduce_sum(std::span(data), kPatient);
      },
      [](Group& g) { return g.barrier(kPatient); },
      [](Group& g) {
        std::vector<int32_t> data(10);
        return g.allgather(std::span(data), kPatient);
      },
      [](Group& g) {
        std::vector<int32_t> data(10);
        return g.broadcast(std::span(data), 1, kPatient);
      },
  };
  for (size_t a = 0; a < calls.size(); ++a) {
    for (size_t b = 0; b < calls.size(); ++b) {
      if (a == b) continue;
      // A whole host, a member that is not its leader, a leader.
      for (const std::vector<int>& others : {std::vector<int>{1, 3}, {3}, {0}}) {
        auto groups = make_groups(Backend::kHosts, 4);
        const auto before = steady_clock::now();
        on_all(4, [&](int r) {
          const bool other = std::ranges::find(others, r) != others.end();
          (void)calls[other ? b : a](*groups[static_cast<size_t>(r)]);
        });
        EXPECT_LT(steady_clock::now() - before, kSoon) << a << " " << b << " " << others[0];
        ASSERT_TRUE(eventually([&] { return groups[2]->failed(); })) << a << " " << b;
        EXPECT_EQ(groups[2]->failure()->kind, FailureKind::kDisagreement)
            << a << " " << b << " " << others[0] << groups[2]->failure()->message;
      }
    }
  }
}

TEST(LocalGroupTest, ARankCanBeTakenOnce) {
  auto hub = LocalHub::create(test_names(2));
  auto first = hub->join(0);
  ASSERT_TRUE(first.ok());
  const auto again = hub->join(0);
  ASSERT_FALSE(again.ok());
  EXPECT_THAT(again.error().message(), HasSubstr("rank 0 (worker-a)"));
  // The failed attempt has not disturbed the first.
  auto other = hub->join(1);
  std::thread thread([&] { EXPECT_TRUE((*other)->barrier().ok()); });
  EXPECT_TRUE((*first)->barrier().ok());
  thread.join();
}

TEST(SoloGroupTest, FailsOnlyWhenAborted) {
  auto group = solo_group("me");
  EXPECT_EQ(group->size(), 1);
  std::vector<float> data(3, 1.5f);
  EXPECT_TRUE(group->allreduce_sum(std::span(data)).ok());
  EXPECT_EQ(data[2], 1.5f);
  group->abort("enough");
  const Status status = group->allreduce_sum(std::span(data));
  EXPECT_THAT(message(status), HasSubstr("enough"));
}

}  // namespace
}  // namespace muster::comm
