// Groups whose members share memory within each host and use TCP between hosts. The hosts are
// namespaces; needs root. The same with pretended hosts: Backend::kHosts of the other tests.
#include <chrono>
#include <csignal>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/comm/group_testing.h"
#include "muster/comm/hosts_testing.h"
#include "muster/comm/process_testing.h"
#include "muster/comm/topology.h"

namespace muster::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr auto kSoon = seconds(10);
constexpr auto kPatience = seconds(60);
constexpr int kHosts = 4;
constexpr int kSize = 12;

Result<std::unique_ptr<Group>> join(const TestHosts& hosts, const MeetingFolder& folder, int rank,
                                    int size = kSize) {
  const int host = rank % kHosts;
  hosts.enter(host);
  MUSTER_TRY(auto device, GlooDevice::open(TestHosts::address(host)));
  FileRendezvous rendezvous(folder.path());
  return make_gloo_group({.device = device,
                          .rendezvous = &rendezvous,
                          .rank = rank,
                          .names = test_names(size),
                          .timeout = kPatience});
}

// Sums of changing sizes until something fails. The data is freed after each call.
void sum_for_ever(Group& group, Report& report, Duration timeout) {
  Status status;
  for (int i = 0; status.ok(); ++i) {
    const size_t count = i % 3 == 0 ? 100 : i % 3 == 1 ? 20'000 : 700'001;
    std::vector<int32_t> data(count, group.rank() + i);
    status = group.allreduce_sum(std::span(data), {.timeout = timeout});
    const int32_t sum = group.size() * (group.size() - 1) / 2 + group.size() * i;
    if (status.ok() && std::ranges::any_of(data, [&](int32_t x) { return x != sum; })) {
      return report.finish("a wrong sum");
    }
    ++report.progress;
  }
  report.finish(group, status);
}

class HostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = TestHosts::unavailable(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_F(HostsTest, MembersShareMemoryWithinAHostOnly) {
  const TestHosts hosts(kHosts);
  const MeetingFolder folder;
  Processes p(kSize, [&](int rank, Report& report) {
    auto group = join(hosts, folder, rank);
    if (!group.ok()) return report.finish(group.error().message());
    std::vector<int32_t> data(100'000, rank);
    const Status status = (*group)->allreduce_sum(std::span(data));
    if (!status.ok()) return report.finish(status.error().message());
    if (data[99'999] != kSize * (kSize - 1) / 2) return report.finish("a wrong sum");
    (void)(*group)->barrier();
    report.finish(std::string((*group)->transport()));
  });
  for (int r = 0; r < kSize; ++r) {
    ASSERT_TRUE(p.wait_done(r)) << r;
    EXPECT_STREQ(p.report(r).message, "shared memory and tcp") << r;
  }
}

// Leaders (0 to 3) and others; the moment is random.
TEST_F(HostsTest, AKilledMemberIsNoticedByAllAtOnce) {
  const TestHosts hosts(kHosts);
  std::mt19937 random(11);
  for (const int victim : {0, 3, 6, 11, 1, 9}) {
    const MeetingFolder folder;
    Processes p(kSize, [&](int rank, Report& report) {
      auto group = join(hosts, folder, rank);
      if (!group.ok()) return report.finish(group.error().message());
      sum_for_ever(**group, report, kPatience);
      group->reset();  // must not hang either
      report.progress = 1'000'000;
    });
    ASSERT_TRUE(p.wait_progress(victim, 4));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    const int64_t killed = steady_clock::now().time_since_epoch().count();
    p.signal(victim, SIGKILL);
    for (int r = 0; r < kSize; ++r) {
      if (r == victim) continue;
      ASSERT_TRUE(p.wait_done(r)) << r;
      EXPECT_LT(Duration(p.report(r).ended_ns - killed), kSoon) << r;
      EXPECT_EQ(p.report(r).kind, FailureKind::kPeerLost) << r << p.report(r).message;
      EXPECT_EQ(p.report(r).origin, victim) << r << p.report(r).message;
      EXPECT_TRUE(Processes::eventually([&] { return p.report(r).progress == 1'000'000; }));
      EXPECT_EQ(p.reap(r, false), 0) << r;
    }
  }
}

TEST_F(HostsTest, AStoppedMemberIsTheSuspectAtTheDeadline) {
  const TestHosts hosts(kHosts);
  for (const int victim : {2, 7}) {  // a leader, and one that is not
    const MeetingFolder folder;
    Processes p(kSize, [&](int rank, Report& report) {
      auto group = join(hosts, folder, rank);
      if (!group.ok()) return report.finish(group.error().message());
      sum_for_ever(**group, report, seconds(2));
    });
    ASSERT_TRUE(p.wait_progress(victim, 4));
    p.signal(victim, SIGSTOP);
    bool named = false;
    for (int r = 0; r < kSize; ++r) {
      if (r == victim) continue;
      ASSERT_TRUE(p.wait_done(r)) << r;
      EXPECT_EQ(p.report(r).kind, FailureKind::kDeadline) << r << p.report(r).message;
      EXPECT_EQ(p.report(r).origin, victim) << r << p.report(r).message;
      named |= p.report(r).suspect == victim;
      EXPECT_TRUE(p.report(r).suspect == victim || p.report(r).suspect == kNobody) << r;
    }
    EXPECT_TRUE(named);
  }
}

// Connections of this host that have a keep-alive timer.
size_t kept_alive() {
  std::ifstream file("/proc/thread-self/net/tcp");
  size_t count = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    for (int i = 0; i < 6; ++i) words >> word;  // number, addresses, state, queues, timer
    if (word.starts_with("02:")) ++count;
  }
  return count;
}

// All pairs of a large group would be many (peer_watch.h).
TEST_F(HostsTest, OnlyMembersThatExchangeDataKeepTheirConnectionsAlive) {
  constexpr int kLarge = 20;
  const TestHosts hosts(kHosts);
  const MeetingFolder folder;
  Processes p(kLarge, [&](int rank, Report& report) {
    auto group = join(hosts, folder, rank, kLarge);
    if (!group.ok()) return report.finish(group.error().message());
    if (!(*group)->barrier().ok()) return report.finish("no barrier");
    const Topology topology(kLarge, {0, 1, 2, 3});
    size_t expected = 0;
    for (int r = rank % kHosts; r < kLarge; r += kHosts) expected += topology.peers(r).size();
    // A connection that waits for an answer has another timer for a moment.
    const bool right = Processes::eventually([&] { return kept_alive() == expected; });
    (void)(*group)->barrier();
    report.finish(right ? "" : fmt::format("{} instead of {}", kept_alive(), expected));
  });
  for (int r = 0; r < kLarge; ++r) {
    ASSERT_TRUE(p.wait_done(r)) << r;
    EXPECT_STREQ(p.report(r).message, "") << r;
  }
}

// In a large group only members that exchange data notice a silent link themselves.
TEST_F(HostsTest, ACutLinkIsNoticedByAllOfALargeGroup) {
  constexpr int kLarge = 20;
  static_assert(kLarge > kAllPairs);
  const TestHosts hosts(kHosts);
  const MeetingFolder folder;
  Processes p(kLarge, [&](int rank, Report& report) {
    auto group = join(hosts, folder, rank, kLarge);
    if (!group.ok()) return report.finish(group.error().message());
    sum_for_ever(**group, report, kPatience);
  });
  for (int r = 0; r < kLarge; ++r) ASSERT_TRUE(p.wait_progress(r, 4)) << r;
  hosts.cut(1, 2);
  bool named = false;
  for (int r = 0; r < kLarge; ++r) {
    ASSERT_TRUE(p.wait_done(r)) << r;
    EXPECT_EQ(p.report(r).kind, FailureKind::kPeerLost) << r << p.report(r).message;
    named |= p.report(r).suspect % kHosts == 1 || p.report(r).suspect % kHosts == 2;
  }
  EXPECT_TRUE(named);
}

}  // namespace
}  // namespace muster::comm
