// Stories: groups that fail, workers that hang, coordinators that are started again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/roster/decide.h"
#include "muster/roster/decide_testing.h"

namespace muster::roster {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(DecideTest, AFailureWithoutADeathIsTriedAgainUnderANewNumber) {
  running(3);
  const RosterNumber before = state_.current.number;
  fail("0", "1");
  Decision decision = decided();
  EXPECT_FALSE(decision.roster) << "news of a death may be on its way";
  EXPECT_EQ(decision.look_again, now_ + options_.confirm);
  pass(options_.confirm);
  decision = decided();
  ASSERT_TRUE(decision.roster);
  EXPECT_TRUE(decision.retry);
  EXPECT_THAT(in(), ElementsAre("0", "1", "2"));
  EXPECT_EQ(state_.current.void_through, before) << "the others shall leave that group as well";
  EXPECT_EQ(decision.reason, "the group failed at worker 0: cannot connect to 1");
}

TEST_F(DecideTest, AFailureThatADeathExplainsIsTheDeath) {
  running(3);
  fail("0", "1");
  EXPECT_FALSE(decided().roster);
  pass(1ms);
  at("1").disconnected = now_;
  const Decision decision = decided();
  ASSERT_TRUE(decision.roster);
  EXPECT_FALSE(decision.retry);
  EXPECT_THAT(in(), ElementsAre("0", "2"));
}

TEST_F(DecideTest, TwoThatCannotWorkTogetherPartAfterThreeTries) {
  running(3);
  for (int round = 1; round <= 3; ++round) {
    fail("0", "1");
    pass(options_.lease / 2);
    beat();
    ASSERT_TRUE(decided().roster) << round;
  }
  EXPECT_THAT(in(), ElementsAre("0", "2")) << "of two that blame each other the higher id goes";
  EXPECT_THAT(state_.current.reason,
              HasSubstr("worker 1 is put out: it could not work with others"));
  form();
  // It asks in again at once, and has to wait.
  join("1");
  Decision decision = decided();
  EXPECT_FALSE(decision.roster);
  ASSERT_TRUE(decision.look_again);
  pass(options_.bar);
  beat();
  ASSERT_TRUE(decided().roster);
  EXPECT_THAT(in(), ElementsAre("0", "2", "1"));
}

TEST_F(DecideTest, TheOneWithMostBrokenLinksGoes) {
  running(4);
  // The links of worker 0 to 1, 2 and 3 are cut; 3 is the highest id, but only 0 is in every
  // conflict.
  for (int round = 1; round <= 3; ++round) {
    for (const char* id : {"1", "2", "3"}) fail(id, "0");
    pass(options_.lease / 2);
    beat();
    ASSERT_TRUE(decided().roster) << round;
  }
  EXPECT_THAT(in(), ElementsAre("1", "2", "3"));
}

TEST_F(DecideTest, AnEchoIsNoBlame) {
  running(4);
  for (int round = 1; round <= 6; ++round) {
    // 0 and 1 cannot reach each other. 2 saw 1 leave, and 3 saw 2.
    fail("0", "1");
    fail("1", "0");
    fail("2", "1");
    fail("3", "2");
    pass(options_.lease / 2);
    beat();
    ASSERT_TRUE(decided().roster);
    if (round < 3) {
      EXPECT_EQ(state_.conflicts.size(), 1U);
    }
    if (round == 3) break;
  }
  EXPECT_THAT(in(), ElementsAre("0", "2", "3"));
}

TEST_F(DecideTest, ABlameThatGoesInACircleIsNobodys) {
  running(3);
  fail("0", "1");
  fail("1", "2");
  fail("2", "0");
  pass(options_.confirm);
  ASSERT_TRUE(decided().roster);
  EXPECT_TRUE(state_.conflicts.empty());
}

TEST_F(DecideTest, TheBarGrowsWithEachTime) {
  state_.bars["1"] = {.until = now_, .times = 2};
  running(2);
  for (int round = 1; round <= 3; ++round) {
    fail("0", "1");
    pass(options_.lease / 2);
    beat();
    decided();
  }
  EXPECT_EQ(state_.bars["1"].until, now_ + options_.bar * 4);
}

TEST_F(DecideTest, TroubleNobodyCanNameDoesNotBecomeAStorm) {
  running(2);
  state_.failures = 4;
  fail("0", "");
  EXPECT_EQ(decided().look_again, now_ + options_.confirm * 16);
}

TEST_F(DecideTest, OneThatHangsWhileOthersWaitForItIsOut) {
  options_.hang_timeout = 10s;
  running(3);
  at("0").beat.activity = at("2").beat.activity = Activity::kWaiting;
  for (int i = 0; i < 9; ++i) {
    pass(1s);
    beat();
    ASSERT_FALSE(decided().roster);
  }
  pass(1s);
  beat();
  EXPECT_THAT(decided().reason,
              HasSubstr("worker 1 is out: it hangs: no progress for 10s after step 0"));
}

TEST_F(DecideTest, WhenNobodyGetsOnAnotherGroupTellsWhoHangs) {
  options_.hang_timeout = 10s;
  running(3);
  for (int i = 0; i < 29; ++i) {
    pass(1s);
    beat();
    ASSERT_FALSE(decided().roster) << "a long step of all is not a hang";
  }
  pass(1s);
  beat();
  const RosterNumber stuck = state_.current.number;
  EXPECT_THAT(decided().reason, HasSubstr("no member got on for 30s"));
  EXPECT_THAT(in(), ElementsAre("0", "1", "2"));
  EXPECT_EQ(state_.current.void_through, stuck);
  // Two come to the new group, the third does not.
  at("0").beat.activity = at("2").beat.activity = Activity::kForming;
  at("0").progressed = at("2").progressed = now_;
  pass(10s);
  beat();
  ASSERT_TRUE(decided().roster);
  EXPECT_THAT(in(), ElementsAre("0", "2"));
}

TEST_F(DecideTest, OneThatNeverComesToTheNewGroupIsOut) {
  options_.hang_timeout = 10s;
  running(3);
  at("0").disconnected = now_;
  ASSERT_TRUE(decided().roster);
  at("1").beat.activity = Activity::kForming;  // and worker 2 is stuck in its old group
  pass(9s);
  beat();
  ASSERT_FALSE(decided().roster);
  pass(1s);
  beat();
  ASSERT_TRUE(decided().roster);
  EXPECT_THAT(in(), ElementsAre("1"));
}

TEST_F(DecideTest, ANewCoordinatorListensFirst) {
  options_.fresh = false;
  hold_77();
  EXPECT_FALSE(decided().roster);
  join("0");  // key (0, 1)
  Decision decision = decided();
  EXPECT_FALSE(decision.roster);
  EXPECT_THAT(decision.reason, HasSubstr("1 of 2 members of roster 77"));
  join("1");
  form();
  decision = decided();
  EXPECT_TRUE(decision.learned);
  EXPECT_FALSE(decision.roster) << "nothing has changed for the workers, so they are not disturbed";
  EXPECT_EQ(state_.current.number, 77);
}

TEST_F(DecideTest, WhoDoesNotShowItselfToANewCoordinatorIsOut) {
  hold_77();
  join("0");
  EXPECT_FALSE(decided().roster);
  pass(options_.grace);
  beat();
  const Decision decision = decided();
  ASSERT_TRUE(decision.roster);
  EXPECT_EQ(decision.reason, "worker 1 is out: it did not show itself");
  EXPECT_EQ(term_of(decision.roster->number), 5);
}

TEST_F(DecideTest, WhoHoldsAnOlderRosterThatTheNewestIsWithoutIsNotTakenInAgain) {
  hold_77();
  join("0");
  join("1");
  join("2").join.held.number = 76;
  form();
  EXPECT_TRUE(decided().learned);
  EXPECT_FALSE(decided().roster);
  EXPECT_EQ(state_.current.number, 77U);
}

TEST_F(DecideTest, ARosterOfAnotherCoordinatorThatComesLateIsOverruled) {
  running(2);
  const RosterNumber foreign = state_.current.number + 1;
  state_.highest = at("0").beat.known = foreign;
  const Decision decision = decided();
  ASSERT_TRUE(decision.roster);
  EXPECT_GT(decision.roster->number, foreign);
  EXPECT_EQ(decision.roster->void_through, foreign);
  EXPECT_THAT(in(), ElementsAre("0", "1"));
}

// 0 writes a large checkpoint at a boundary where 1 waits for it; meanwhile 2 has joined.
TEST_F(DecideTest, OneThatWaitsInTheOldGroupForAPeerThatGetsOnDoesNotHang) {
  options_.hang_timeout = 10s;
  running(2);
  join("2");
  ASSERT_TRUE(decided().roster);
  at("2").beat.activity = Activity::kForming;
  for (int i = 0; i < 60; ++i) {
    pass(1s);
    beat();
    at("0").progressed = at("2").progressed = now_;
    ASSERT_FALSE(decided().roster) << i;
  }
  for (int i = 0; i < 9; ++i) {
    pass(1s);
    beat();
    ASSERT_FALSE(decided().roster) << i;
  }
  pass(1s);
  beat();
  EXPECT_THAT(decided().reason, HasSubstr("worker 0 is out: it hangs"));
}

TEST_F(DecideTest, OneThatHangsWhileFormingAGroupIsOut) {
  options_.hang_timeout = 10s;
  running(1);
  at("0").beat.group = 0;
  at("0").beat.activity = Activity::kForming;
  for (int i = 0; i < 29; ++i) {
    pass(1s);
    beat();
    ASSERT_FALSE(decided().roster);
  }
  pass(1s);
  beat();
  EXPECT_THAT(decided().reason, HasSubstr("worker 0 is out: it hangs"));
}

}  // namespace
}  // namespace muster::roster
