#include "tools/muster-launch/verify/blow.h"

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

TEST(Blow, TheDrawSaysWho) {
  for (const uint64_t whom : {0, 1, 2, 5}) {
    const auto blow = choose_blow(fault(FaultKind::kKill, whom), {kA, kB, kC}, kLanes);
    ASSERT_TRUE(blow);
    EXPECT_THAT(blow->victims, ElementsAre(std::vector{kA, kB, kC}[whom % 3]));
    EXPECT_EQ(blow->signal, SIGKILL);
  }
}

TEST(Blow, NobodyIsThereNobodyIsHit) {
  for (const auto kind :
       {FaultKind::kKill, FaultKind::kAimed, FaultKind::kStop, FaultKind::kJoin}) {
    EXPECT_FALSE(choose_blow(fault(kind), {}, kLanes));
  }
}

TEST(Blow, SomebodyIsLeftToGoOn) {
  EXPECT_FALSE(choose_blow(fault(FaultKind::kPair), {kA, kB}, kLanes));
  EXPECT_FALSE(choose_blow(fault(FaultKind::kMost), {kA}, kLanes));
  EXPECT_FALSE(choose_blow(fault(FaultKind::kStop), {kA}, kLanes));
  EXPECT_FALSE(choose_blow(fault(FaultKind::kLeave), {kA}, kLanes));
}

TEST(Blow, TwoAndAllButOne) {
  const auto pair = choose_blow(fault(FaultKind::kPair, 2), {kA, kB, kC}, kLanes);
  ASSERT_TRUE(pair);
  EXPECT_THAT(pair->victims, ElementsAre(kC, kB));
  const auto most = choose_blow(fault(FaultKind::kMost, 1), {kA, kB, kC}, kLanes);
  ASSERT_TRUE(most);
  EXPECT_THAT(most->victims, ElementsAre(kA, kC)) << "the drawn one survives";
}

TEST(Blow, OnlyTheLaunchersOwnHang) {
  for (const uint64_t whom : {0, 1, 2, 3}) {
    const auto blow = choose_blow(fault(FaultKind::kHang, whom), {kJoined, kA, kB}, kLanes);
    ASSERT_TRUE(blow);
    EXPECT_THAT(blow->victims, ElementsAre(whom % 2 == 0 ? kA : kB));
  }
  EXPECT_FALSE(choose_blow(fault(FaultKind::kHang), {kA}, kLanes)) << "nobody waits for it";
  EXPECT_FALSE(choose_blow(fault(FaultKind::kHang), {kJoined}, kLanes));
}

TEST(Blow, ACutNeedsTwoOfTheLaunchersAndAThird) {
  for (const uint64_t whom : {0, 1, 2}) {
    for (const uint64_t other : {0, 1, 2}) {
      Fault cut = fault(FaultKind::kCut, whom);
      cut.draw |= other << 32;
      const auto blow = choose_blow(cut, {kA, kJoined, kB, kC}, kLanes);
      ASSERT_TRUE(blow);
      ASSERT_EQ(blow->victims.size(), 2U);
      EXPECT_NE(blow->victims[0], blow->victims[1]);
      for (const auto& victim : blow->victims) EXPECT_FALSE(is_joiner(victim));
    }
  }
  EXPECT_FALSE(choose_blow(fault(FaultKind::kCut), {kA, kB}, kLanes));
  EXPECT_FALSE(choose_blow(fault(FaultKind::kCut), {kA, kJoined, kJoined}, kLanes));
}

TEST(Blow, TheDiskOfTheOneThatWritesCheckpointsIsSlow) {
  const auto blow = choose_blow(fault(FaultKind::kSlowDisk, 2), {kB, kA, kC}, kLanes);
  ASSERT_TRUE(blow);
  EXPECT_THAT(blow->victims, ElementsAre(kB));
  EXPECT_GT(slow_disk_milliseconds(fault(FaultKind::kSlowDisk), 3), 3000);
  EXPECT_EQ(slow_disk_milliseconds(fault(FaultKind::kSlowDisk), 86400), 60000);
}

TEST(Blow, TheCoordinatorIsNoMember) {
  for (const auto kind : {FaultKind::kPause, FaultKind::kRestart}) {
    EXPECT_TRUE(hits_coordinator(kind));
    const auto blow = choose_blow(fault(kind), {kA}, kLanes);
    ASSERT_TRUE(blow);
    EXPECT_THAT(blow->victims, ElementsAre());
    EXPECT_FALSE(choose_blow(fault(kind), {}, kLanes)) << "there is none yet, or it is away";
    EXPECT_FALSE(comes_in(kind, kA));
  }
  EXPECT_FALSE(hits_coordinator(FaultKind::kHang));
}

TEST(Blow, WhoHangsIsReplacedAndWhoIsCutOffMayStay) {
  EXPECT_TRUE(comes_in(FaultKind::kHang, kA));
  EXPECT_FALSE(comes_in(FaultKind::kCut, kA));
  EXPECT_FALSE(comes_in(FaultKind::kSlowDisk, kA));
  EXPECT_TRUE(ends_incarnation(FaultKind::kHang));
  EXPECT_TRUE(ends_incarnation(FaultKind::kStop));
  EXPECT_FALSE(ends_incarnation(FaultKind::kCut));
  EXPECT_FALSE(ends_incarnation(FaultKind::kSlowDisk));
}

TEST(Blow, TheLauncherKeepsOneOfItsOwn) {
  EXPECT_FALSE(choose_blow(fault(FaultKind::kLeave, 0), {kA, kJoined}, kLanes));
  const auto joiner = choose_blow(fault(FaultKind::kLeave, 1), {kA, kJoined}, kLanes);
  ASSERT_TRUE(joiner);
  EXPECT_THAT(joiner->victims, ElementsAre(kJoined));
  EXPECT_EQ(joiner->signal, SIGTERM);
  EXPECT_TRUE(choose_blow(fault(FaultKind::kLeave, 0), {kA, kB, kJoined}, kLanes));
}

TEST(Blow, NoMoreWorkersThanLanes) {
  const auto join = choose_blow(fault(FaultKind::kJoin), {kA, kB}, 3);
  ASSERT_TRUE(join);
  EXPECT_TRUE(join->victims.empty());
  EXPECT_FALSE(choose_blow(fault(FaultKind::kJoin), {kA, kB, kC}, 3));
}

TEST(Blow, OnlyTheFirstWritesCheckpoints) {
  const auto blow =
      choose_blow(fault(FaultKind::kAimed, 2, FaultPoint::kCheckpoint), {kA, kB, kC}, kLanes);
  ASSERT_TRUE(blow);
  EXPECT_THAT(blow->victims, ElementsAre(kA));
  EXPECT_EQ(blow->signal, fault_signal(FaultPoint::kCheckpoint));
  EXPECT_FALSE(blow->killed);
}

TEST(Blow, SomePointsArePassedOnlyWhenAnotherOneDies) {
  for (const auto point : {FaultPoint::kForming, FaultPoint::kRecovery, FaultPoint::kTransfer}) {
    EXPECT_FALSE(choose_blow(fault(FaultKind::kAimed, 0, point), {kA, kB}, kLanes));
    for (const uint64_t whom : {0, 1, 2}) {
      const auto blow = choose_blow(fault(FaultKind::kAimed, whom, point), {kA, kB, kC}, kLanes);
      ASSERT_TRUE(blow && blow->killed);
      EXPECT_NE(*blow->killed, blow->victims.at(0));
    }
  }
  const auto alone =
      choose_blow(fault(FaultKind::kAimed, 0, FaultPoint::kAfterCommit), {kA}, kLanes);
  ASSERT_TRUE(alone);
  EXPECT_FALSE(alone->killed);
}

TEST(Blow, FallsWithinFiveMillisecondsAndAStopOutlastsTheLease) {
  for (const uint64_t draw : {uint64_t{0}, uint64_t{4999}, uint64_t{5000}, ~uint64_t{0}}) {
    const Fault stop{FaultKind::kStop, FaultPoint::kNone, 0, draw};
    EXPECT_GE(delay_of(stop), microseconds(0));
    EXPECT_LT(delay_of(stop), microseconds(5000));
    EXPECT_GE(stop_seconds(stop, 2), 2.5);
    EXPECT_LT(stop_seconds(stop, 2), 3.5);
  }
}

TEST(Blow, JoinersAreKnownByTheirNames) {
  EXPECT_TRUE(is_joiner({joiner_id(7), 1}));
  EXPECT_FALSE(is_joiner(kA));
}

TEST(Blow, WhoComesIn) {
  EXPECT_TRUE(comes_in(FaultKind::kKill, kA));
  EXPECT_TRUE(comes_in(FaultKind::kMost, kA));
  EXPECT_FALSE(comes_in(FaultKind::kKill, kJoined)) << "nobody starts it again";
  EXPECT_TRUE(comes_in(FaultKind::kStop, kJoined)) << "it only slept";
  EXPECT_TRUE(comes_in(FaultKind::kJoin, kJoined));
  EXPECT_FALSE(comes_in(FaultKind::kLeave, kA));
}

}  // namespace
}  // namespace muster::cli
