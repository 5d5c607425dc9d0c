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
using testing::IsEmpty;
using testing::SizeIs;

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
  EXPECT_EQ(state_.current.invalid_through, before) << "the others shall leave that group as well";
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
              HasSubstr("worker 1 was removed: it could not work with others"));
  form();
  // It asks in again at once, and has to wait.
  join("1");
  Decision decision = decided();
  EXPECT_FALSE(decision.roster);
  ASSERT_TRUE(decision.look_again);
  pass(options_.quarantine);
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

// 0 and 1 cannot reach each other. 0 notices first and closes the group; 1 sees only that.
TEST_F(DecideTest, OneReportOfASuspectIsEnough) {
  running(4);
  for (int round = 1; round <= 3; ++round) {
    fail("0", "1");
    for (const char* id : {"1", "2", "3"}) fail(id, "");
    pass(options_.lease / 2);
    beat();
    ASSERT_TRUE(decided().roster);
  }
  EXPECT_THAT(in(), ElementsAre("0", "2", "3"));
}

TEST_F(DecideTest, TheBarGrowsWithEachTime) {
  state_.quarantines["1"] = {.until = now_, .times = 2};
  running(2);
  for (int round = 1; round <= 3; ++round) {
    fail("0", "1");
    pass(options_.lease / 2);
    beat();
    decided();
  }
  EXPECT_EQ(state_.quarantines["1"].until, now_ + options_.quarantine * 4);
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
              HasSubstr("worker 1 was removed: it hangs: no progress for 10s after step 0"));
}

TEST_F(DecideTest, OneThatAnAuditFoundFaultyIsRemovedAndQuarantined) {
  running(3);
  const WorkerKey faulty = at("2").key();
  const auto accuse = [&](const std::string& id) {
    fail(id, "");
    at(id).beat.faulty = "2";
    at(id).beat.trouble = "its state differs";
  };
  accuse("0");
  EXPECT_THAT(decided().out, IsEmpty()) << "one of three may be the faulty one";
  accuse("1");
  const auto decision = decided();
  ASSERT_EQ(decision.out.size(), 1U);
  EXPECT_EQ(decision.out[0].who, faulty);
  EXPECT_EQ(decision.out[0].cause, RemovalCause::kFaulty);
  EXPECT_THAT(decision.out[0].reason, HasSubstr("its state differs; it may rejoin in 10s"));
  EXPECT_THAT(in(), ElementsAre("0", "1"));

  // Started again, it waits. That others still say what they saw is no accusation of this one.
  join("2");
  state_.current.number -= 1;
  accuse("1");
  state_.current.number += 1;
  form();
  EXPECT_THAT(decided().out, IsEmpty());
  EXPECT_THAT(in(), ElementsAre("0", "1"));
  pass(std::chrono::seconds(10));
  beat();
  form();
  EXPECT_TRUE(decided().roster);
  EXPECT_THAT(in(), ElementsAre("0", "1", "2"));
}

TEST_F(DecideTest, OneThatReportsItselfAsFaultyIsRemoved) {
  running(3);
  fail("2", "");
  at("2").beat.faulty = "2";
  const auto decision = decided();
  ASSERT_EQ(decision.out.size(), 1U);
  EXPECT_EQ(decision.out[0].cause, RemovalCause::kFaulty);
}

TEST_F(DecideTest, WhoWasNotInThatGroupAccusesNobody) {
  running(2);
  join("stranger").beat.broken = state_.current.number;
  at("stranger").beat.faulty = "1";
  EXPECT_THAT(decided().out, IsEmpty());
}

TEST_F(DecideTest, ALongStepOfAllIsNotAHang) {
  options_.hang_timeout = 10s;
  running(3);
  for (int i = 0; i < 100; ++i) {
    pass(1s);
    beat();
    ASSERT_FALSE(decided().roster);
  }
}

// Worker 1 hangs inside a collective: by its heartbeats it waits like the others.
TEST_F(DecideTest, WhenAllWaitForEachOtherAnotherGroupTellsWhichOneHangs) {
  options_.hang_timeout = 10s;
  running(3);
  for (const char* id : {"0", "1", "2"}) at(id).beat.activity = Activity::kWaiting;
  const Moment began = now_;
  for (int i = 0; i < 4; ++i) {
    pass(1s);
    beat();
    ASSERT_FALSE(decided().roster);
  }
  pass(1s);
  beat();
  const RosterNumber stuck = state_.current.number;
  EXPECT_THAT(decided().reason, HasSubstr("no member makes progress, for 5.0s"));
  EXPECT_THAT(in(), ElementsAre("0", "1", "2"));
  EXPECT_EQ(state_.current.invalid_through, stuck);
  // Two come to the new group, the third does not.
  for (const char* id : {"0", "2"}) {
    at(id).beat.group = 0;
    at(id).beat.activity = Activity::kForming;
    at(id).awaits_addresses = state_.current.number;
    at(id).progressed = now_;
  }
  for (int i = 0; i < 4; ++i) {
    pass(1s);
    beat();
    ASSERT_FALSE(decided().roster) << i;
  }
  pass(1s);
  beat();
  ASSERT_TRUE(decided().roster);
  EXPECT_EQ(now_ - began, options_.hang_timeout) << "not restarted by the roster in between";
  EXPECT_THAT(in(), ElementsAre("0", "2"));
}

// Its peers give up connecting again and again; that does not give it more time.
TEST_F(DecideTest, RetriesDoNotRestartTheClockOfAMemberThatHangs) {
  options_.hang_timeout = 10s;
  running(3);
  fail("0", "");
  fail("2", "");
  at("1").beat.group = 0;
  pass(options_.lease / 2);
  beat();
  ASSERT_TRUE(decided().roster);
  state_.awaited = now_;
  const Moment began = now_;
  while (in().size() == 3 && now_ < began + 20s) {
    pass(1s);
    beat();
    if (decided().roster && in().size() == 3) ADD_FAILURE() << "who hangs must not be retried";
    fail("0", "");
    fail("2", "");
    at("0").progressed = at("2").progressed = now_;
    at("0").broke = at("2").broke = now_ + 1h;  // the coordinator waits a little each time
  }
  EXPECT_THAT(in(), ElementsAre("0", "2"));
  EXPECT_LE(now_ - began, options_.hang_timeout + 1s);
}

// One that is told to leave hangs before its last step boundary.
TEST_F(DecideTest, OneThatHangsWhileItLeavesIsRemovedNotTheOneThatWaitsForIt) {
  options_.hang_timeout = 10s;
  running(2);
  at("1").beat.leaving = true;
  ASSERT_TRUE(decided().roster);
  EXPECT_THAT(in(), ElementsAre("0"));
  at("0").beat.activity = Activity::kWaiting;
  for (int i = 0; i < 12 && state_.workers.contains("1"); ++i) {
    pass(1s);
    beat();
    decided();
  }
  EXPECT_FALSE(state_.workers.contains("1"));
  EXPECT_THAT(in(), ElementsAre("0"));
}

// Too few are left, so nobody trains; but one that hangs in the group before is still noticed.
TEST_F(DecideTest, OneThatHangsIsRemovedAlsoWhileTheJobWaitsForWorkers) {
  options_.hang_timeout = 10s;
  options_.min_workers = 2;
  running(2);
  at("1").beat.leaving = true;
  ASSERT_TRUE(decided().roster);
  ASSERT_TRUE(state_.current.waiting);
  at("1").beat.activity = Activity::kWaiting;
  for (int i = 0; i < 12 && state_.workers.contains("0"); ++i) {
    pass(1s);
    beat();
    decided();
  }
  EXPECT_FALSE(state_.workers.contains("0"));
}

// The story of a planned change during a hang: nobody but the one that hangs is removed.
TEST_F(DecideTest, WhoWaitsInTheOldGroupForOneThatHangsIsNotRemovedWithIt) {
  options_.hang_timeout = 10s;
  running(3);
  at("0").beat.activity = at("2").beat.activity = Activity::kWaiting;
  join("3");
  pass(1s);
  beat();
  at("3").progressed = now_;
  ASSERT_TRUE(decided().roster);
  at("3").awaits_addresses = state_.current.number;
  state_.awaited = now_;
  for (int i = 0; i < 12 && in().size() == 4; ++i) {
    pass(1s);
    beat();
    decided();
  }
  EXPECT_THAT(in(), ElementsAre("0", "2", "3"));
}

// Its thread hangs, and it was asked to leave: nobody waits for it, but its launcher cannot start
// another one in its place.
TEST_F(DecideTest, OneThatWasAskedToLeaveAndHangsIsRemoved) {
  options_.hang_timeout = 10s;
  running(2);
  at("1").beat.leaving = true;
  ASSERT_TRUE(decided().roster);
  form();
  EXPECT_THAT(in(), ElementsAre("0"));
  at("1").beat.group = 0;
  at("1").beat.activity = Activity::kIdle;
  pass(5s);
  beat();
  at("1").asked_to_leave = now_;
  for (int i = 0; i < 9; ++i) {
    pass(1s);
    beat();
    at("0").progressed = now_;
    ASSERT_THAT(decided().out, IsEmpty()) << i;
  }
  pass(1s);
  beat();
  at("0").progressed = now_;
  const Decision decision = decided();
  ASSERT_THAT(decision.out, SizeIs(1));
  EXPECT_EQ(decision.out[0].who.id, "1");
  EXPECT_EQ(decision.out[0].cause, RemovalCause::kHung);
  EXPECT_EQ(decision.out[0].reason, "it hangs: it was asked to leave and has not left for 10s");
}

// One that has said that it has left waits to be released, for as long as that takes.
TEST_F(DecideTest, OneThatHasLeftDoesNotHang) {
  options_.hang_timeout = 10s;
  running(2);
  at("1").beat.leaving = true;
  at("1").asked_to_leave = now_;
  ASSERT_TRUE(decided().roster);
  form();
  at("1").beat.group = 0;
  at("1").beat.activity = Activity::kLeft;
  for (int i = 0; i < 60; ++i) {
    pass(1s);
    beat();
    at("0").progressed = now_;
    EXPECT_THAT(decided().out, IsEmpty()) << i;
  }
  // Unless it was released, and does not exit.
  at("1").released = now_;
  pass(9s);
  beat();
  at("0").progressed = now_;
  EXPECT_THAT(decided().out, IsEmpty());
  pass(1s);
  beat();
  at("0").progressed = now_;
  EXPECT_THAT(decided().out, SizeIs(1));
}

TEST_F(DecideTest, TheOnlyMemberIsGivenThreeTimesAsLong) {
  options_.hang_timeout = 10s;
  running(1);
  for (int i = 0; i < 29; ++i) {
    pass(1s);
    beat();
    ASSERT_FALSE(decided().roster);
  }
  pass(1s);
  beat();
  EXPECT_THAT(decided().reason, HasSubstr("worker 0 was removed: it hangs"));
}

TEST_F(DecideTest, FurtherLossesWhileAGroupIsFormedAreGathered) {
  running(5);
  at("0").exited = "killed";
  ASSERT_TRUE(decided().roster) << "the first loss is answered at once";
  at("1").exited = "killed";
  Decision decision = decided();
  EXPECT_FALSE(decision.roster);
  EXPECT_EQ(decision.look_again, now_ + options_.loss_batch);
  at("2").exited = "killed";
  EXPECT_FALSE(decided().roster);
  pass(options_.loss_batch);
  ASSERT_TRUE(decided().roster);
  EXPECT_THAT(in(), ElementsAre("3", "4"));
}

TEST_F(DecideTest, AfterASuspensionConnectionsGetTimeToComeBack) {
  running(2);
  state_.resumed = now_;
  at("1").disconnected = now_;
  EXPECT_FALSE(decided().roster);
  at("1").disconnected.reset();
  pass(options_.grace);
  beat();
  EXPECT_FALSE(decided().roster);
  at("1").disconnected = now_;
  EXPECT_TRUE(decided().roster);
}

TEST_F(DecideTest, OneThatNeverComesToTheNewGroupIsOut) {
  options_.hang_timeout = 10s;
  running(3);
  at("0").disconnected = now_;
  ASSERT_TRUE(decided().roster);
  // Worker 1 waits for the addresses of the others, and worker 2 is stuck in its old group.
  at("1").beat.group = 0;
  at("1").beat.activity = Activity::kForming;
  at("1").awaits_addresses = state_.current.number;
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
  EXPECT_EQ(decision.reason, "worker 1 was removed: it did not reconnect");
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
  EXPECT_EQ(decision.roster->invalid_through, foreign);
  EXPECT_THAT(in(), ElementsAre("0", "1"));
}

// 0 writes a large checkpoint at a boundary where 1 waits for it; meanwhile 2 has joined.
TEST_F(DecideTest, OneThatWaitsInTheOldGroupForAPeerThatMakesProgressDoesNotHang) {
  options_.hang_timeout = 10s;
  running(2);
  at("1").beat.activity = Activity::kWaiting;
  join("2");
  ASSERT_TRUE(decided().roster);
  at("2").awaits_addresses = state_.current.number;
  state_.awaited = now_;
  for (int i = 0; i < 60; ++i) {
    pass(1s);
    beat();
    at("0").progressed = now_;
    ASSERT_FALSE(decided().roster) << i;
  }
  for (int i = 0; i < 9; ++i) {
    pass(1s);
    beat();
    ASSERT_FALSE(decided().roster) << i;
  }
  pass(1s);
  beat();
  EXPECT_THAT(decided().reason, HasSubstr("worker 0 was removed: it hangs"));
}

TEST_F(DecideTest, OneThatHangsBeforeItGivesItsAddressesIsOut) {
  options_.hang_timeout = 10s;
  running(1);
  at("0").beat.group = 0;
  at("0").beat.activity = Activity::kForming;
  for (int i = 0; i < 9; ++i) {
    pass(1s);
    beat();
    ASSERT_FALSE(decided().roster);
  }
  pass(1s);
  beat();
  EXPECT_THAT(decided().reason, HasSubstr("worker 0 was removed: it hangs"));
}

}  // namespace
}  // namespace muster::roster
