#include "tools/muster-launch/verify/fault_target.h"

#include <signal.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using launch::Fault;
using launch::FaultKind;
using std::chrono::microseconds;
using ::testing::ElementsAre;

constexpr int kLanes = 8;
const Target kA{"0", 100, 7};
const Target kB{"1", 101, 7};
const Target kC{"2", 102, 7};
const Target kJoined{"joiner-1", 103, 7};

Fault fault(FaultKind kind, uint64_t whom = 0, FaultPoint point = FaultPoint::kNone) {
  return {kind, point, 10, whom << 16};
}

TEST(FaultTarget, TheDrawSaysWho) {
  for (const uint64_t whom : {0, 1, 2, 5}) {
    const auto target = choose_target(fault(FaultKind::kKill, whom), {kA, kB, kC}, kLanes);
    ASSERT_TRUE(target);
    EXPECT_THAT(target->victims, ElementsAre(std::vector{kA, kB, kC}[whom % 3]));
    EXPECT_EQ(target->signal, SIGKILL);
  }
}

TEST(FaultTarget, NobodyIsThereNobodyIsHit) {
  for (const auto kind :
       {FaultKind::kKill, FaultKind::kAimed, FaultKind::kSuspend, FaultKind::kJoin}) {
    EXPECT_FALSE(choose_target(fault(kind), {}, kLanes));
  }
}

TEST(FaultTarget, SomebodyIsLeftToGoOn) {
  EXPECT_FALSE(choose_target(fault(FaultKind::kPair), {kA, kB}, kLanes));
  EXPECT_FALSE(choose_target(fault(FaultKind::kMost), {kA}, kLanes));
  EXPECT_FALSE(choose_target(fault(FaultKind::kSuspend), {kA}, kLanes));
  EXPECT_FALSE(choose_target(fault(FaultKind::kLeave), {kA}, kLanes));
}

TEST(FaultTarget, TwoAndAllButOne) {
  const auto pair = choose_target(fault(FaultKind::kPair, 2), {kA, kB, kC}, kLanes);
  ASSERT_TRUE(pair);
  EXPECT_THAT(pair->victims, ElementsAre(kC, kB));
  const auto most = choose_target(fault(FaultKind::kMost, 1), {kA, kB, kC}, kLanes);
  ASSERT_TRUE(most);
  EXPECT_THAT(most->victims, ElementsAre(kA, kC)) << "the drawn one survives";
}

TEST(FaultTarget, OnlyTheLaunchersOwnHang) {
  for (const uint64_t whom : {0, 1, 2, 3}) {
    const auto target = choose_target(fault(FaultKind::kHang, whom), {kJoined, kA, kB}, kLanes);
    ASSERT_TRUE(target);
    EXPECT_THAT(target->victims, ElementsAre(whom % 2 == 0 ? kA : kB));
  }
  EXPECT_FALSE(choose_target(fault(FaultKind::kHang), {kA}, kLanes)) << "nobody waits for it";
  EXPECT_FALSE(choose_target(fault(FaultKind::kHang), {kJoined}, kLanes));
}

TEST(FaultTarget, ACutNeedsTwoOfTheLaunchersAndAThird) {
  for (const uint64_t whom : {0, 1, 2}) {
    for (const uint64_t other : {0, 1, 2}) {
      Fault cut = fault(FaultKind::kCut, whom);
      cut.draw |= other << 32;
      const auto target = choose_target(cut, {kA, kJoined, kB, kC}, kLanes);
      ASSERT_TRUE(target);
      ASSERT_EQ(target->victims.size(), 2U);
      EXPECT_NE(target->victims[0], target->victims[1]);
      for (const auto& victim : target->victims) EXPECT_FALSE(is_joiner(victim));
    }
  }
  EXPECT_FALSE(choose_target(fault(FaultKind::kCut), {kA, kB}, kLanes));
  EXPECT_FALSE(choose_target(fault(FaultKind::kCut), {kA, kJoined, kJoined}, kLanes));
}

TEST(FaultTarget, TheDiskOfTheOneThatWritesCheckpointsIsSlow) {
  const auto target = choose_target(fault(FaultKind::kSlowDisk, 2), {kB, kA, kC}, kLanes);
  ASSERT_TRUE(target);
  EXPECT_THAT(target->victims, ElementsAre(kB));
  EXPECT_GT(slow_disk_milliseconds(fault(FaultKind::kSlowDisk), 3), 3000);
  EXPECT_EQ(slow_disk_milliseconds(fault(FaultKind::kSlowDisk), 86400), 60000);
}

TEST(FaultTarget, TheCoordinatorIsNoMember) {
  for (const auto kind : {FaultKind::kPause, FaultKind::kRestart}) {
    EXPECT_TRUE(hits_coordinator(kind));
    const auto target = choose_target(fault(kind), {kA}, kLanes);
    ASSERT_TRUE(target);
    EXPECT_THAT(target->victims, ElementsAre());
    EXPECT_FALSE(choose_target(fault(kind), {}, kLanes)) << "there is none yet, or it is away";
    EXPECT_FALSE(comes_in(kind, kA));
  }
  EXPECT_FALSE(hits_coordinator(FaultKind::kHang));
}

TEST(FaultTarget, WhoHangsIsReplacedAndWhoIsCutOffMayStay) {
  EXPECT_TRUE(comes_in(FaultKind::kHang, kA));
  EXPECT_FALSE(comes_in(FaultKind::kCut, kA));
  EXPECT_FALSE(comes_in(FaultKind::kSlowDisk, kA));
  EXPECT_TRUE(ends_incarnation(FaultKind::kHang));
  EXPECT_TRUE(ends_incarnation(FaultKind::kSuspend));
  EXPECT_FALSE(ends_incarnation(FaultKind::kCut));
  EXPECT_FALSE(ends_incarnation(FaultKind::kSlowDisk));
}

TEST(FaultTarget, TheLauncherKeepsOneOfItsOwn) {
  EXPECT_FALSE(choose_target(fault(FaultKind::kLeave, 0), {kA, kJoined}, kLanes));
  const auto joiner = choose_target(fault(FaultKind::kLeave, 1), {kA, kJoined}, kLanes);
  ASSERT_TRUE(joiner);
  EXPECT_THAT(joiner->victims, ElementsAre(kJoined));
  EXPECT_EQ(joiner->signal, SIGTERM);
  EXPECT_TRUE(choose_target(fault(FaultKind::kLeave, 0), {kA, kB, kJoined}, kLanes));
}

TEST(FaultTarget, NoMoreWorkersThanLanes) {
  const auto join = choose_target(fault(FaultKind::kJoin), {kA, kB}, 3);
  ASSERT_TRUE(join);
  EXPECT_TRUE(join->victims.empty());
  EXPECT_FALSE(choose_target(fault(FaultKind::kJoin), {kA, kB, kC}, 3));
}

TEST(FaultTarget, OnlyTheFirstWritesCheckpoints) {
  const auto target =
      choose_target(fault(FaultKind::kAimed, 2, FaultPoint::kCheckpoint), {kA, kB, kC}, kLanes);
  ASSERT_TRUE(target);
  EXPECT_THAT(target->victims, ElementsAre(kA));
  EXPECT_EQ(target->signal, fault_signal(FaultPoint::kCheckpoint));
  EXPECT_FALSE(target->killed);
}

TEST(FaultTarget, SomePointsArePassedOnlyWhenAnotherOneDies) {
  for (const auto point : {FaultPoint::kForming, FaultPoint::kRecovery, FaultPoint::kTransfer}) {
    EXPECT_FALSE(choose_target(fault(FaultKind::kAimed, 0, point), {kA, kB}, kLanes));
    for (const uint64_t whom : {0, 1, 2}) {
      const auto target =
          choose_target(fault(FaultKind::kAimed, whom, point), {kA, kB, kC}, kLanes);
      ASSERT_TRUE(target && target->killed);
      EXPECT_NE(*target->killed, target->victims.at(0));
    }
  }
  const auto alone =
      choose_target(fault(FaultKind::kAimed, 0, FaultPoint::kAfterCommit), {kA}, kLanes);
  ASSERT_TRUE(alone);
  EXPECT_FALSE(alone->killed);
}

TEST(FaultTarget, AServerThatDiesWhileItSendsCopiesHasOneThatJoinsAndOneThatStays) {
  const auto copy = [](uint64_t whom) {
    return fault(FaultKind::kAimedServer, whom, FaultPoint::kCopy);
  };
  EXPECT_FALSE(choose_target(copy(0), {kA, kB}, kLanes));
  for (const uint64_t whom : {0, 1, 2}) {
    const auto target = choose_target(copy(whom), {kA, kB, kC}, kLanes);
    ASSERT_TRUE(target && target->killed);
    EXPECT_NE(*target->killed, target->victims.at(0));
    EXPECT_EQ(target->signal, fault_signal(FaultPoint::kCopy));
    EXPECT_FALSE(target->suspended);
  }
}

TEST(FaultTarget, AServerThatDiesWhileItJoinsLosesItsMembershipFirst) {
  const auto join =
      choose_target(fault(FaultKind::kAimedServer, 1, FaultPoint::kJoin), {kA, kB}, kLanes);
  ASSERT_TRUE(join);
  EXPECT_THAT(join->victims, ElementsAre(kB));
  EXPECT_TRUE(join->suspended);
  EXPECT_FALSE(join->killed);
  const auto ack =
      choose_target(fault(FaultKind::kAimedServer, 0, FaultPoint::kAck), {kA, kB}, kLanes);
  ASSERT_TRUE(ack);
  EXPECT_FALSE(ack->suspended);
  EXPECT_TRUE(hits_server(FaultKind::kAimedServer));
  EXPECT_FALSE(hits_server(FaultKind::kAimed));
  EXPECT_FALSE(comes_in(FaultKind::kAimedServer, kA));
}

TEST(FaultTarget, FallsWithinFiveMillisecondsAndAStopOutlastsTheLease) {
  for (const uint64_t draw : {uint64_t{0}, uint64_t{4999}, uint64_t{5000}, ~uint64_t{0}}) {
    const Fault stop{FaultKind::kSuspend, FaultPoint::kNone, 0, draw};
    EXPECT_GE(delay_of(stop), microseconds(0));
    EXPECT_LT(delay_of(stop), microseconds(5000));
    EXPECT_GE(stop_seconds(stop, 2), 2.5);
    EXPECT_LT(stop_seconds(stop, 2), 3.5);
  }
}

TEST(FaultTarget, JoinersAreKnownByTheirNames) {
  EXPECT_TRUE(is_joiner({joiner_id(7), 1}));
  EXPECT_FALSE(is_joiner(kA));
}

TEST(FaultTarget, WhoComesIn) {
  EXPECT_TRUE(comes_in(FaultKind::kKill, kA));
  EXPECT_TRUE(comes_in(FaultKind::kMost, kA));
  EXPECT_FALSE(comes_in(FaultKind::kKill, kJoined)) << "nobody starts it again";
  EXPECT_TRUE(comes_in(FaultKind::kSuspend, kJoined)) << "it only slept";
  EXPECT_TRUE(comes_in(FaultKind::kJoin, kJoined));
  EXPECT_FALSE(comes_in(FaultKind::kLeave, kA));
}

}  // namespace
}  // namespace muster::cli
