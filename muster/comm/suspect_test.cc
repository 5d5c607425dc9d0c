// Which member a failure is attributed to: real processes that are stopped, late, or cannot reach
// each other.
#include <chrono>
#include <csignal>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/comm/group_testing.h"
#include "muster/comm/hosts_testing.h"
#include "muster/comm/peer_watch.h"
#include "muster/comm/process_testing.h"

namespace muster::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

constexpr auto kPatience = seconds(60);

Result<std::unique_ptr<Group>> join(const MeetingFolder& folder, int rank, int size,
                                    const std::string& address = "127.0.0.1",
                                    Duration timeout = kPatience, GroupFailure* failure = nullptr) {
  MUSTER_TRY(auto device, GlooDevice::open(address));
  FileRendezvous rendezvous(folder.path());
  return make_gloo_group({.device = device,
                          .rendezvous = &rendezvous,
                          .rank = rank,
                          .names = test_names(size),
                          .timeout = timeout},
                         failure);
}

// Rank 0 sends to rank 1, which does not receive, and would then send to rank 2, which does.
void send_in_turn(const MeetingFolder& folder, int rank, Report& report) {
  auto group = join(folder, rank, 3);
  if (!group.ok()) return report.finish(group.error().message());
  std::vector<int32_t> data(100'000, rank);
  report.progress = 1;
  Status status;
  if (rank == 0) {
    status = (*group)->send(std::span(data), 1, {.timeout = kPatience});
    if (status.ok()) status = (*group)->send(std::span(data), 2, {.timeout = kPatience});
  } else if (rank == 1) {
    while (!(*group)->failed()) std::this_thread::sleep_for(milliseconds(1));
    status = (*group)->recv(std::span(data), 0, {.timeout = kPatience});
  } else {
    status = (*group)->recv(std::span(data), 0, {.timeout = seconds(1)});
  }
  report.finish(**group, status);
}

TEST(SuspectTest, ASourceThatWaitsForALateReceiverIsNotNamedByAnotherReceiver) {
  const MeetingFolder folder;
  Processes p(3, [&](int rank, Report& report) { send_in_turn(folder, rank, report); });
  for (int r = 0; r < 3; ++r) {
    ASSERT_TRUE(p.wait_done(r)) << r;
    EXPECT_EQ(p.report(r).kind, FailureKind::kDeadline) << r << p.report(r).message;
    EXPECT_EQ(p.report(r).origin, 1) << r << p.report(r).message;
    EXPECT_EQ(p.report(r).suspect, kNobody) << r << p.report(r).message;
    EXPECT_THAT(p.report(r).message, HasSubstr("rank 1 (worker-b) lives, but did not come")) << r;
  }
}

TEST(SuspectTest, ASourceThatWaitsForAStoppedReceiverIsNotNamedByAnotherReceiver) {
  const MeetingFolder folder;
  Processes p(3, [&](int rank, Report& report) { send_in_turn(folder, rank, report); });
  for (int r = 0; r < 3; ++r) ASSERT_TRUE(p.wait_progress(r, 1)) << r;
  p.signal(1, SIGSTOP);
  ASSERT_TRUE(p.wait_done(2));
  EXPECT_EQ(p.report(2).origin, 1) << p.report(2).message;
  EXPECT_EQ(p.report(2).suspect, 1) << p.report(2).message;
  EXPECT_THAT(p.report(2).message, HasSubstr("rank 1 (worker-b) is silent"));
  // Rank 0 only heard of it.
  ASSERT_TRUE(p.wait_done(0));
  EXPECT_EQ(p.report(0).origin, 1) << p.report(0).message;
  EXPECT_EQ(p.report(0).suspect, kNobody) << p.report(0).message;
}

TEST(SuspectTest, ATransferThatBothSidesTakePartInHasNoSuspect) {
  // Far too much for the time: the deadline falls into the middle of the message.
  constexpr size_t kBytes = size_t{1} << 30;
  const MeetingFolder folder;
  Processes p(2, [&](int rank, Report& report) {
    auto group = join(folder, rank, 2);
    if (!group.ok()) return report.finish(group.error().message());
    const std::vector<uint8_t> from(rank == 0 ? kBytes : 0, 7);
    std::vector<uint8_t> into(rank == 0 ? 0 : kBytes);
    (void)(*group)->barrier();
    const Status status = rank == 0
                              ? (*group)->send(std::span(from), 1, {.timeout = kPatience})
                              : (*group)->recv(std::span(into), 0, {.timeout = milliseconds(20)});
    report.finish(**group, status);
  });
  for (int r = 0; r < 2; ++r) {
    ASSERT_TRUE(p.wait_done(r));
    EXPECT_EQ(p.report(r).kind, FailureKind::kDeadline) << p.report(r).message;
    EXPECT_EQ(p.report(r).suspect, kNobody) << p.report(r).message;
    EXPECT_THAT(p.report(r).message, HasSubstr("lives and takes part, but too slowly"));
  }
}

TEST(SuspectTest, AMemberThatAWaitingMemberWaitsForInAnotherOperationIsNamed) {
  const MeetingFolder folder;
  Processes p(3, [&](int rank, Report& report) {
    auto group = join(folder, rank, 3);
    if (!group.ok()) return report.finish(group.error().message());
    std::vector<int32_t> data(10);
    report.progress = 1;
    if (rank == 2) ::pause();
    while (report.progress < 2) std::this_thread::sleep_for(milliseconds(1));
    const Status status = rank == 0 ? (*group)->barrier({.timeout = seconds(1)})
                                    : (*group)->recv(std::span(data), 2, {.timeout = kPatience});
    report.finish(**group, status);
  });
  for (int r = 0; r < 3; ++r) ASSERT_TRUE(p.wait_progress(r, 1)) << r;
  p.signal(2, SIGSTOP);
  p.report(1).progress = 2;
  std::this_thread::sleep_for(milliseconds(100));
  p.report(0).progress = 2;
  ASSERT_TRUE(p.wait_done(0));
  EXPECT_EQ(p.report(0).origin, 2) << p.report(0).message;
  EXPECT_EQ(p.report(0).suspect, 2) << p.report(0).message;
}

TEST(SuspectTest, APeerThatOnlyClosedOrAbortedIsNoSuspect) {
  for (const bool kill : {true, false}) {
    const MeetingFolder folder;
    Processes p(2, [&](int rank, Report& report) {
      auto group = join(folder, rank, 2);
      if (!group.ok()) return report.finish(group.error().message());
      report.progress = 1;
      if (rank == 1) {
        while (report.progress < 2) std::this_thread::sleep_for(milliseconds(1));
        (*group)->abort("a new roster");
        ::pause();
      }
      report.finish(**group, (*group)->barrier({.timeout = kPatience}));
    });
    for (int r = 0; r < 2; ++r) ASSERT_TRUE(p.wait_progress(r, 1));
    if (kill) {
      p.signal(1, SIGKILL);
    } else {
      p.report(1).progress = 2;
    }
    ASSERT_TRUE(p.wait_done(0));
    EXPECT_EQ(p.report(0).origin, 1) << p.report(0).message;
    EXPECT_EQ(p.report(0).suspect, kNobody) << p.report(0).message;
  }
}

TEST(SuspectTest, AFailedRendezvousHasNoSuspect) {
  MemoryRendezvous rendezvous;
  GroupFailure failure{.suspect = 1, .message = ""};
  const auto group = make_gloo_group({.device = *GlooDevice::open("127.0.0.1"),
                                      .rendezvous = &rendezvous,
                                      .rank = 0,
                                      .names = test_names(2),
                                      .timeout = milliseconds(20)},
                                     &failure);
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(failure.kind, FailureKind::kDeadline);
  EXPECT_EQ(failure.suspect, kNobody);
  EXPECT_THAT(failure.message, HasSubstr("rank 1 of 2 did not come"));
}

// Three hosts; ranks 1 and 2 cannot reach each other. Rank 1 is the one that dials.
class UnreachableTest : public ::testing::TestWithParam<bool> {};

TEST_P(UnreachableTest, IsTheSuspectOfItsPeerAndOfNobodyElse) {
  const bool refused = GetParam();  // by the route, at once; else packets vanish
  if (const auto reason = TestHosts::unavailable(); !reason.empty()) GTEST_SKIP() << reason;
  ASSERT_TRUE(dials(1, 2, 3));
  const TestHosts hosts(3);
  hosts.cut(refused ? 1 : 2, refused ? 2 : 1);
  const MeetingFolder folder;
  const auto began = steady_clock::now();
  Processes p(3, [&](int rank, Report& report) {
    hosts.enter(rank);
    GroupFailure failure;
    auto group = join(folder, rank, 3, TestHosts::address(rank), seconds(20), &failure);
    report.set(failure);
    report.finish(group.ok() ? "good" : group.error().message());
  });
  for (int r = 0; r < 3; ++r) {
    ASSERT_TRUE(p.wait_done(r)) << r;
    EXPECT_EQ(p.report(r).kind, FailureKind::kPeerLost) << r << p.report(r).message;
    EXPECT_THAT(p.report(r).message, HasSubstr("rank 2 (worker-c) cannot be reached")) << r;
    EXPECT_THAT(p.report(r).message, HasSubstr("from rank 1 (worker-b)")) << r;
    EXPECT_EQ(p.report(r).origin, 2) << r;
  }
  EXPECT_LT(steady_clock::now() - began, seconds(15));  // long before the deadline
  EXPECT_EQ(p.report(0).suspect, kNobody);
  EXPECT_EQ(p.report(1).suspect, 2);
  EXPECT_EQ(p.report(2).suspect, 1);
}

INSTANTIATE_TEST_SUITE_P(Ways, UnreachableTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Refused" : "Dropped"; });

TEST(UnreachableDeadlineTest, APeerThatCannotBeReachedIsTheSuspectAtTheDeadline) {
  if (const auto reason = TestHosts::unavailable(); !reason.empty()) GTEST_SKIP() << reason;
  const TestHosts hosts(3);
  hosts.cut(2, 1);
  const MeetingFolder folder;
  ASSERT_LT(seconds(3), PeerWatch::kDialTime);
  Processes p(3, [&](int rank, Report& report) {
    hosts.enter(rank);
    GroupFailure failure;
    const auto timeout = rank == 0 ? kPatience : Duration(seconds(3));
    auto group = join(folder, rank, 3, TestHosts::address(rank), timeout, &failure);
    report.set(failure);
    report.finish(group.ok() ? "good" : group.error().message());
  });
  bool named = false;
  for (int r = 0; r < 3; ++r) {
    ASSERT_TRUE(p.wait_done(r)) << r;
    EXPECT_EQ(p.report(r).kind, FailureKind::kDeadline) << r << p.report(r).message;
    EXPECT_THAT(p.report(r).message, HasSubstr("no connection with it could be made in time")) << r;
    named |= p.report(r).suspect == 3 - r;
  }
  EXPECT_EQ(p.report(0).suspect, kNobody);
  EXPECT_TRUE(named) << "neither rank 1 nor rank 2 named the other";
}

}  // namespace
}  // namespace muster::comm
