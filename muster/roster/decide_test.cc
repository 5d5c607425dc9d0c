// Stories: each test tells what happens to a job, and looks at what is decided and why.
#include "muster/roster/decide.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::roster {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class DecideTest : public testing::Test {
 protected:
  DecideTest() {
    options_.job = "story";
    options_.lanes = 8;
    options_.term = 5;
    state_.started = now_;
  }

  void pass(Duration time) { now_ += time; }

  WorkerState& join(const std::string& id) {
    WorkerState worker;
    worker.join.key = {id, ++incarnations_};
    worker.join.job = "story";
    worker.join.host = "host-" + id;
    worker.joined = worker.heard = worker.progressed = now_;
    if (!state_.first_join) state_.first_join = now_;
    return state_.workers[id] = worker;
  }
  WorkerState& at(const std::string& id) { return state_.workers.at(id); }
  // All that live send a heartbeat.
  void beat() {
    for (auto& [id, worker] : state_.workers) {
      if (!asleep_.contains(id)) worker.heard = now_;
    }
  }
  // The members form the group of the present roster.
  void form() {
    for (const Member& member : state_.current.members) {
      at(member.key.id).beat.known = state_.current.number;
      at(member.key.id).beat.group = state_.current.number;
      at(member.key.id).beat.activity = Activity::kComputing;
      at(member.key.id).progressed = now_;
    }
  }
  void fail(const std::string& id, const std::string& suspect) {
    WorkerState& worker = at(id);
    worker.beat.group = 0;
    worker.beat.broken = state_.current.number;
    worker.beat.suspect = suspect;
    worker.beat.trouble = "cannot connect to " + suspect;
    worker.broke = now_;
    for (Conflict& conflict : state_.conflicts) {
      if (conflict.a == std::min(id, suspect) && conflict.b == std::max(id, suspect)) {
        ++conflict.rosters;
        return;
      }
    }
    state_.conflicts.push_back(
        {std::min(id, suspect), std::max(id, suspect), 1, state_.current.number});
  }
  Decision decided() {
    Decision decision = decide(now_, state_, options_);
    carry_out(now_, decision, state_, options_);
    return decision;
  }
  std::vector<std::string> in() const {
    std::vector<std::string> ids;
    for (const Member& member : state_.current.members) ids.push_back(member.key.id);
    return ids;
  }
  // Workers 0 to n-1 train together.
  void running(int n) {
    for (int i = 0; i < n; ++i) join(std::to_string(i));
    ASSERT_TRUE(decided().roster);
    form();
  }
  // What workers (0, 1) and (1, 2) hold of an earlier coordinator.
  void hold_77() {
    state_.learning = true;
    state_.highest = state_.current.number = 77;
    for (const WorkerKey& key : {WorkerKey{"0", 1}, WorkerKey{"1", 2}}) {
      state_.current.members.emplace_back().key = key;
    }
  }
  size_t lanes_given() const {
    std::set<int32_t> lanes;
    size_t count = 0;
    for (const Member& member : state_.current.members) {
      lanes.insert(member.lanes.begin(), member.lanes.end());
      count += member.lanes.size();
    }
    EXPECT_EQ(lanes.size(), count) << "a lane was given twice";
    return count;
  }

  Moment now_{100s};
  Options options_;
  State state_;
  std::set<std::string> asleep_;
  uint64_t incarnations_ = 0;
};

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
  EXPECT_EQ(decision.reason, "2 of 3 workers are here");
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
  EXPECT_THAT(decision.reason, HasSubstr("waiting: 1 of at least 2 workers are here"));
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
  EXPECT_EQ(decision.reason, "worker 1 is out: its connection broke");
  EXPECT_THAT(in(), ElementsAre("0", "2"));
  EXPECT_EQ(lanes_given(), 8);
  EXPECT_EQ(sequence_of(state_.current.number), sequence_of(before) + 1);
}

TEST_F(DecideTest, WithSomeLingerItMayComeBack) {
  options_.linger = 300ms;
  running(2);
  at("1").disconnected = now_;
  Decision decision = decided();
  EXPECT_FALSE(decision.roster);
  EXPECT_EQ(decision.look_again, now_ + 300ms);
  at("1").disconnected.reset();
  pass(300ms);
  EXPECT_FALSE(decided().roster);
}

TEST_F(DecideTest, WhatTheLauncherSawIsTheReason) {
  running(2);
  at("0").exited = "it was killed by signal 9";
  EXPECT_EQ(decided().reason, "worker 0 is out: it was killed by signal 9");
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
  EXPECT_THAT(decided().reason, HasSubstr("worker 1 is out: nothing was heard from it for 2.0s"));
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
  at("1").beat.activity = Activity::kDone;
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
              HasSubstr("worker 1 is put out: it could not work with 1 of the others"));
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
  state_.conflicts.clear();
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

TEST_F(DecideTest, ALongStepOfAllIsNotAHang) {
  options_.hang_timeout = 10s;
  running(3);
  for (int i = 0; i < 30; ++i) {
    pass(1s);
    beat();
    ASSERT_FALSE(decided().roster);
  }
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
  EXPECT_EQ(state_.current.void_through, 0) << "nobody aborts for this";
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

TEST_F(DecideTest, ARosterOfAnotherCoordinatorThatComesLateIsOverruled) {
  running(2);
  const RosterNumber foreign = state_.current.number + 1;
  state_.highest = foreign;  // a worker said it has that one
  const Decision decision = decided();
  ASSERT_TRUE(decision.roster);
  EXPECT_GT(decision.roster->number, foreign);
  EXPECT_EQ(decision.roster->void_through, foreign);
  EXPECT_THAT(in(), ElementsAre("0", "1"));
}

TEST_F(DecideTest, AFinishedJobChangesNoMore) {
  running(2);
  state_.finished = true;
  at("0").disconnected = now_;
  EXPECT_FALSE(decided().roster);
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
