#include "tools/muster-launch/verify/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using launch::FaultKind;
using ::testing::ElementsAre;

InjectedFault at(double when, FaultKind kind = FaultKind::kKill) {
  return {"kill", kind, "1", when, when, 0, -1, -1, -1, -1};
}

// A commit each second, but for the eight seconds before step 6.
const CommitTimes kCommits = {{1, 101}, {2, 102}, {3, 103}, {4, 104}, {5, 105},
                              {6, 113}, {7, 114}, {8, 115}, {9, 116}};

double stalled(double when) {
  std::vector<InjectedFault> happened = {at(when)};
  EXPECT_DOUBLE_EQ(measure_pauses(kCommits, happened), 1);
  return happened[0].stalled;
}

TEST(Pauses, AFaultIsBlamedForThePauseItFallsInto) {
  EXPECT_DOUBLE_EQ(stalled(106), 7);
  EXPECT_DOUBLE_EQ(stalled(112.9), 7);
}

TEST(Pauses, TheCommitUnderWayMaySucceed) {
  EXPECT_DOUBLE_EQ(stalled(104.5), 7) << "step 5 was nearly done";
  EXPECT_DOUBLE_EQ(stalled(103.5), 0) << "two steps later it was somebody else";
  EXPECT_DOUBLE_EQ(stalled(113), 0) << "and what comes after the pause did not cause it";
}

TEST(Pauses, EndWithACommit) {
  std::vector<InjectedFault> happened = {at(104.5), at(113.5), at(116)};
  (void)measure_pauses(kCommits, happened);
  EXPECT_EQ(happened[0].recovered, 113);
  EXPECT_EQ(happened[1].recovered, 114);
  EXPECT_EQ(happened[2].recovered, -1) << "nothing came after it";
}

TEST(Pauses, AtTheEdges) {
  EXPECT_DOUBLE_EQ(stalled(90), 0) << "before the first commit";
  EXPECT_DOUBLE_EQ(stalled(115.5), 0);
  EXPECT_DOUBLE_EQ(stalled(116), -1) << "nothing came after it";
}

TEST(Pauses, WithoutStepsNothingIsKnown) {
  std::vector<InjectedFault> happened = {at(1)};
  EXPECT_EQ(measure_pauses({}, happened), 0);
  EXPECT_EQ(measure_pauses({{1, 5.0}}, happened), 0);
  EXPECT_EQ(happened[0].stalled, -1);
}

std::vector<double> stalled(std::vector<InjectedFault> happened) {
  (void)measure_pauses(kCommits, happened);
  std::vector<double> all;
  for (const auto& what : happened) all.push_back(what.stalled);
  return all;
}

TEST(Pauses, WhatFallsBesideAStopIsNotBlamedForTheLease) {
  const auto stop = at(105.5, FaultKind::kSuspend);
  EXPECT_THAT(stalled({stop, at(109)}), ElementsAre(7, 0)) << "all waited for the lease anyway";
  EXPECT_THAT(stalled({at(105.2), stop}), ElementsAre(0, 7)) << "also if it fell before";
  EXPECT_THAT(stalled({at(104.5), stop}), ElementsAre(0, 7));
  EXPECT_THAT(stalled({at(104.2, FaultKind::kSuspend), at(104.5)}), ElementsAre(7, 0))
      << "the stopped one had done its part of step 5";
  EXPECT_THAT(stalled({stop, at(109, FaultKind::kSuspend)}), ElementsAre(7, 7)) << "two leases";
}

TEST(Pauses, AStopDoesNotHideWhatAnotherFaultCosts) {
  // The stop costs eight seconds, and a kill in the last of them two more.
  const CommitTimes commits = {{1, 101}, {2, 102}, {3, 103}, {4, 112},
                               {5, 115}, {6, 116}, {7, 117}, {8, 118}};
  std::vector<InjectedFault> happened = {at(103.5, FaultKind::kSuspend), at(111.9), at(116.5)};
  EXPECT_DOUBLE_EQ(measure_pauses(commits, happened), 1);
  EXPECT_EQ(happened[0].stalled, 8);
  EXPECT_EQ(happened[1].stalled, 2);
  EXPECT_EQ(happened[2].stalled, 0) << "the stop is long over";
}

TEST(Pauses, WithNothingButTheStopsPauseBehindItNothingIsKnown) {
  std::vector<InjectedFault> happened = {at(101.5, FaultKind::kSuspend), at(102)};
  (void)measure_pauses({{1, 101}, {2, 110}}, happened);
  EXPECT_EQ(happened[1].stalled, -1);
}

TEST(Pauses, WhatFallsBesideAHangOrACutIsNotBlamedForIt) {
  for (const auto kind : {FaultKind::kHang, FaultKind::kCut}) {
    EXPECT_THAT(stalled({at(105.5, kind), at(109)}), ElementsAre(7, 0));
  }
}

// The pause of seven seconds may come long after the coordinator was suspended: when it continues.
TEST(Pauses, WhatLastsIsLookedAtUntilItsEnd) {
  for (const auto kind : {FaultKind::kPause, FaultKind::kRestart, FaultKind::kSlowDisk}) {
    auto what = at(101.5, kind);
    EXPECT_THAT(stalled({what}), ElementsAre(0)) << "its end is not known yet";
    what.until = 103.5;
    EXPECT_THAT(stalled({what}), ElementsAre(0)) << "two commits later";
    what.until = 104.5;
    EXPECT_THAT(stalled({what}), ElementsAre(7));
    EXPECT_THAT(stalled({what, at(105.5, FaultKind::kSuspend)}), ElementsAre(0, 7));
  }
}

TEST(Spread, OfRejoins) {
  auto one = at(100);
  one.rejoined = 101.5;
  EXPECT_EQ(rejoin_spread_of({one, at(102)}, FaultKind::kKill).count, 1U);
  EXPECT_EQ(rejoin_spread_of({one, at(102)}, FaultKind::kKill).median, 1.5);
  EXPECT_EQ(rejoins_json({one}).dump(),
            R"({"kill":{"count":1,"median":1.5,"p99":1.5,"longest":1.5}})");
}

TEST(Spread, IsOfOneKindAndOfWhatIsKnown) {
  std::vector<InjectedFault> happened;
  for (int i = 100; i >= 1; --i) {
    happened.push_back(at(0));
    happened.back().stalled = i;
  }
  happened.push_back(at(0));  // not known
  happened.push_back(at(0, FaultKind::kSuspend));
  happened.back().stalled = 3;
  const Spread kill = spread_of(happened, FaultKind::kKill);
  EXPECT_EQ(kill.count, 100U);
  EXPECT_EQ(kill.median, 51);
  EXPECT_EQ(kill.worst99, 100);
  EXPECT_EQ(kill.worst, 100);
  const Spread stop = spread_of(happened, FaultKind::kSuspend);
  EXPECT_EQ(stop.count, 1U);
  EXPECT_EQ(stop.median, 3);
  EXPECT_EQ(stop.worst99, 3);
  EXPECT_EQ(spread_of(happened, FaultKind::kJoin).count, 0U);
}

TEST(Timeline, ForPeople) {
  InjectedFault what{"kill@forming", FaultKind::kAimed, "joiner-2", 1000.5, 12.345, 77,
                     0.25,           1000.875,          -1,         -1};
  EXPECT_EQ(happened_text(what), "   12.35 s  step     77  kill@forming         worker joiner-2");
  EXPECT_EQ(recovered_text(what),
            "   12.72 s                 recovered          stalled for 250 ms by kill@forming of "
            "joiner-2");
  EXPECT_EQ(rejoined_text(what, "2", 1002),
            "   13.85 s                 rejoined           worker 2, 1.50 s after kill@forming");
  EXPECT_THAT(pauses_text({what}, 0.0123),
              ElementsAre("the others were stalled for (less a step of 12.3 ms):",
                          "  kill at a point         1 times: median    250 ms, 99 %    250 ms, "
                          "longest    250 ms"));
}

TEST(Timeline, TheCoordinatorIsNoWorker) {
  InjectedFault what{"pause", FaultKind::kPause, "coordinator", 1000.5, 2, 7, 0.01, 1003, -1,
                     1002.5};
  EXPECT_EQ(happened_text(what), "    2.00 s  step      7  pause                coordinator");
}

TEST(Timeline, ForPrograms) {
  InjectedFault what{"suspend", FaultKind::kSuspend, "2", 1000.5, 12.25, 77, 0.5, 1001.25, -1, -1};
  EXPECT_EQ(timeline_json({what}).dump(),
            R"([{"time":1000.5,"step":77,"fault":"suspend","worker":"2","stalled":0.5,)"
            R"("recovered":1001.25,"rejoined":null,"until":null}])");
  EXPECT_EQ(pauses_json({what}).dump(),
            R"({"suspend":{"count":1,"median":0.5,"p99":0.5,"longest":0.5}})");
  EXPECT_EQ(timeline_json({}).dump(), "[]");
  EXPECT_EQ(pauses_json({}).dump(), "{}");
}

}  // namespace
}  // namespace muster::cli
