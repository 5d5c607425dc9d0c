// Stories: who joins, leaves and dies, and what is decided and why.
#include "muster/roster/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/roster/decide_testing.h"

namespace muster::roster {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(DecideTest, TheFirstWorkerBeginsAloneUnlessMoreAreExpected) {
  join("0");
  const Decision decision = decided();
  ASSERT_TRUE(decision.roster);
  EXPECT_THAT(in(), ElementsAre("0"));
  EXPECT_EQ(lanes_given(), 8);
  EXPECT_EQ(decision.reason, "worker 0 joins");
}

TEST_F(DecideTest, TheFirstRosterWaitsForAllThatWereStarted) {
  options_.expected = 3;
  join("0");
  join("1");
  Decision decision = decided();
  EXPECT_FALSE(decision.roster);
  EXPECT_EQ(decision.reason, "2 of 3 workers have joined");
  ASSERT_TRUE(decision.look_again);
  join("2");
  ASSERT_TRUE(decided().roster);
  EXPECT_THAT(in(), ElementsAre("0", "1", "2"));
}

TEST_F(DecideTest, ButNotForEver) {
  options_.expected = 3;
  join("0");
  join("1");
  EXPECT_FALSE(decided().roster);
  pass(options_.gather);
  beat();
  ASSERT_TRUE(decided().roster);
  EXPECT_THAT(in(), ElementsAre("0", "1"));
}

TEST_F(DecideTest, BelowTheMinimumTheJobWaitsAndSaysSo) {
  options_.min_workers = 2;
  join("0");
  Decision decision = decided();
  ASSERT_TRUE(decision.roster);
  EXPECT_TRUE(decision.roster->waiting);
  EXPECT_THAT(decision.reason, HasSubstr("waiting: 1 of at least 2 workers have joined"));
  EXPECT_EQ(lanes_given(), 0);
  EXPECT_FALSE(decided().roster) << "once is enough";
  join("1");
  decision = decided();
  ASSERT_TRUE(decision.roster);
  EXPECT_FALSE(decision.roster->waiting);
  EXPECT_EQ(lanes_given(), 8);
}

TEST_F(DecideTest, ABrokenConnectionIsADeath) {
  running(3);
  const RosterNumber before = state_.current.number;
  at("1").disconnected = now_;
  const Decision decision = decided();
  ASSERT_TRUE(decision.roster);
  EXPECT_THAT(decision.out, SizeIs(1));
  EXPECT_EQ(decision.reason, "worker 1 was removed: its connection broke");
  EXPECT_THAT(in(), ElementsAre("0", "2"));
  EXPECT_EQ(lanes_given(), 8);
  EXPECT_EQ(sequence_of(state_.current.number), sequence_of(before) + 1);
}

TEST_F(DecideTest, WhatTheLauncherSawIsTheReason) {
  running(2);
  at("0").exited = "it was killed by signal 9";
  EXPECT_EQ(decided().reason, "worker 0 was removed: it was killed by signal 9");
}

TEST_F(DecideTest, AHungHostIsOutWhenItsLeaseIsOver) {
  running(2);
  asleep_ = {"1"};
  pass(options_.lease - 1ms);
  beat();
  Decision decision = decided();
  EXPECT_FALSE(decision.roster);
  EXPECT_EQ(decision.look_again, now_ + 1ms);
  pass(1ms);
  EXPECT_THAT(decided().reason,
              HasSubstr("worker 1 was removed: nothing was heard from it for 2.0s"));
  EXPECT_THAT(in(), ElementsAre("0"));
}

TEST_F(DecideTest, WhenAllAreGoneTheJobWaits) {
  running(2);
  at("0").disconnected = at("1").disconnected = now_;
  ASSERT_TRUE(decided().roster);
  EXPECT_TRUE(state_.current.waiting);
  EXPECT_THAT(in(), IsEmpty());
  EXPECT_FALSE(decided().roster);
  join("0");
  ASSERT_TRUE(decided().roster);
  EXPECT_FALSE(state_.current.waiting);
}

TEST_F(DecideTest, AJoinerWaitsUntilTheGroupStands) {
  join("0");
  join("1");
  ASSERT_TRUE(decided().roster);
  join("2");
  Decision decision = decided();
  EXPECT_FALSE(decision.roster);
  EXPECT_EQ(decision.reason, "the group of the present roster is being formed");
  form();
  decision = decided();
  ASSERT_TRUE(decision.roster);
  EXPECT_EQ(decision.reason, "worker 2 joins");
  EXPECT_THAT(in(), ElementsAre("0", "1", "2"));
  EXPECT_EQ(lanes_given(), 8);
}

TEST_F(DecideTest, ADeathDoesNotWaitAndTakesTheJoinerAlong) {
  join("0");
  join("1");
  ASSERT_TRUE(decided().roster);
  join("2");
  at("0").disconnected = now_;
  ASSERT_TRUE(decided().roster);
  EXPECT_THAT(in(), ElementsAre("1", "2"));
}

TEST_F(DecideTest, AboveTheMaximumOneIsASpare) {
  options_.max_workers = 2;
  running(2);
  join("2");
  EXPECT_FALSE(decided().roster);
  at("0").disconnected = now_;
  ASSERT_TRUE(decided().roster);
  EXPECT_THAT(in(), ElementsAre("1", "2"));
}

TEST_F(DecideTest, ThereAreNeverMoreMembersThanLanes) {
  options_.lanes = 2;
  for (int i = 0; i < 4; ++i) join(std::to_string(i));
  ASSERT_TRUE(decided().roster);
  EXPECT_THAT(in(), ElementsAre("0", "1"));
}

TEST_F(DecideTest, WhoLeavesStaysInTheGroupUntilItsEnd) {
  running(3);
  at("1").beat.leaving = true;
  Decision decision = decided();
  ASSERT_TRUE(decision.roster);
  EXPECT_EQ(decision.reason, "worker 1 leaves");
  EXPECT_THAT(in(), ElementsAre("0", "2"));
  EXPECT_THAT(state_.current.leaving, ElementsAre(at("1").key()));
  EXPECT_FALSE(decided().roster) << "said once";
  // They switch at a step boundary, and it goes.
  form();
  at("1").beat.activity = Activity::kLeft;
  at("1").disconnected = now_;
  decision = decided();
  EXPECT_FALSE(decision.roster);
  EXPECT_THAT(decision.out, SizeIs(1));
  EXPECT_FALSE(decided().roster);
}

TEST_F(DecideTest, WhoDiesWhileLeavingIsADeath) {
  running(3);
  at("1").beat.leaving = true;
  ASSERT_TRUE(decided().roster);
  at("1").disconnected = now_;
  const Decision decision = decided();
  ASSERT_TRUE(decision.roster) << "the others may be waiting for it in the old group";
  EXPECT_THAT(state_.current.leaving, IsEmpty());
  EXPECT_THAT(in(), ElementsAre("0", "2"));
  EXPECT_FALSE(decided().roster);
}

TEST_F(DecideTest, WhenTheLastOneLeavesTheJobWaits) {
  running(1);
  at("0").beat.leaving = true;
  ASSERT_TRUE(decided().roster);
  EXPECT_TRUE(state_.current.waiting);
  EXPECT_THAT(state_.current.leaving, SizeIs(1));
}

TEST_F(DecideTest, LanesFollowSpeedWhenItIsWorthIt) {
  options_.lanes = 26;
  running(4);
  for (auto& [id, worker] : state_.workers) worker.lane_seconds = 0.1;
  pass(options_.rebalance_every);
  beat();
  Decision decision = decided();
  EXPECT_FALSE(decision.roster);
  EXPECT_TRUE(decision.rebalanced);
  at("3").lane_seconds = 0.4;
  pass(options_.rebalance_every - 1ms);
  beat();
  EXPECT_FALSE(decided().roster) << "not more often than every 5 s";
  pass(1ms);
  decision = decided();
  ASSERT_TRUE(decision.roster);
  EXPECT_THAT(decision.reason,
              HasSubstr("lanes follow speed: 4 of 26 move, a step takes 0.8 s instead of 2.4 s"));
  EXPECT_THAT(state_.current.members[3].lanes, SizeIs(2));
  EXPECT_EQ(lanes_given(), 26);
  EXPECT_EQ(state_.current.invalid_through, 0) << "nobody aborts for this";
}

TEST_F(DecideTest, AJobThatHasEndedChangesNoMore) {
  running(2);
  state_.ended = Ended{true, "the job is finished after step 9"};
  at("0").disconnected = now_;
  join("2");
  const Decision decision = decided();
  EXPECT_FALSE(decision.roster);
  EXPECT_THAT(decision.out, testing::IsEmpty()) << "it was not lost, it has done its work";
  EXPECT_FALSE(decision.look_again);
  EXPECT_EQ(decision.reason, "the job is finished after step 9");
}

TEST_F(DecideTest, ThoseThatStayKeepTheirOrder) {
  running(5);
  at("1").disconnected = now_;
  ASSERT_TRUE(decided().roster);
  form();
  join("1");
  ASSERT_TRUE(decided().roster);
  EXPECT_THAT(in(), ElementsAre("0", "2", "3", "4", "1"));
}

}  // namespace
}  // namespace muster::roster
