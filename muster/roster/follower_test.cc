// The worker's side of the protocol, driven by hand: what it says and orders, message by message.
#include "muster/roster/follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::roster {
namespace {

using namespace std::chrono_literals;
using Kind = Instruction::Kind;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class FollowerTest : public testing::Test {
 protected:
  FollowerTest() : follower_(options(), now_) {}

  static FollowerOptions options() {
    FollowerOptions options;
    options.join.key.id = "a";
    options.join.job = "job";
    options.seed = 7;
    return options;
  }

  // All orders of one kind since the last look; the others are forgotten.
  template <typename T>
  std::vector<T> take() {
    std::vector<T> result;
    for (FollowerAction& action : follower_.take_actions()) {
      if (auto* one = std::get_if<T>(&action)) result.push_back(std::move(*one));
    }
    return result;
  }
  template <typename T>
  std::vector<T> sent() {
    std::vector<T> result;
    for (Send& send : take<Send>()) {
      if (auto* one = std::get_if<T>(&send.message)) result.push_back(std::move(*one));
    }
    return result;
  }
  void pass(Duration time) {
    now_ += time;
    follower_.tick(now_);
  }
  void connect() {
    follower_.tick(now_);
    follower_.connected(now_);
    follower_.received(now_, Welcome{2s, 400ms});
  }
  Roster roster(RosterNumber number, const std::vector<WorkerKey>& others = {{"b", 5}}) const {
    Roster result;
    result.number = number;
    result.job = "job";
    result.reason = "because";
    result.members.emplace_back().key = follower_.key();
    for (const WorkerKey& key : others) result.members.emplace_back().key = key;
    return result;
  }
  void receive(const Roster& roster) {
    follower_.received(now_, difference(sent_, roster));
    sent_ = roster;
  }
  // Into the group of that roster.
  void enter(const Roster& next) {
    receive(next);
    ASSERT_EQ(follower_.next(now_).kind, Kind::kForm);
    follower_.offer(now_, next.number, std::string(kTrainers), "address");
    const auto blobs = std::make_shared<const std::vector<std::string>>(next.members.size(), "x");
    follower_.received(now_, Addresses{next.number, std::string(kTrainers), blobs, "", false});
    ASSERT_THAT(take<AddressesReady>(), SizeIs(1));
    follower_.formed(now_, next.number);
    ASSERT_EQ(follower_.heartbeat().group, next.number);
  }

  Moment now_{100s};
  Follower follower_;
  Roster sent_;  // in this connection
};

TEST_F(FollowerTest, AWorkerWithoutARosterJoinsUnderANewKeyEachTime) {
  follower_.tick(now_);
  EXPECT_THAT(take<Connect>(), SizeIs(1));
  follower_.connected(now_);
  const auto first = sent<JoinRequest>();
  ASSERT_THAT(first, SizeIs(1));
  follower_.disconnected(now_);
  pass(1s);
  follower_.connected(now_);
  const auto second = sent<JoinRequest>();
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_NE(first[0].key.incarnation, second[0].key.incarnation);
  EXPECT_EQ(second[0].held.number, 0);
}

TEST_F(FollowerTest, AMemberReregistersUnderItsKeyWithItsRoster) {
  connect();
  enter(roster(3));
  const WorkerKey key = follower_.key();
  follower_.disconnected(now_);
  pass(1s);
  take<Connect>();
  follower_.connected(now_);
  const auto join = sent<JoinRequest>();
  ASSERT_THAT(join, SizeIs(1));
  EXPECT_EQ(join[0].key, key);
  EXPECT_EQ(join[0].held.number, 3);
  EXPECT_EQ(join[0].highest, 3);
}

TEST_F(FollowerTest, HeartbeatsGoOnWithoutTheWorkersThread) {
  connect();
  enter(roster(1));
  take<Send>();
  for (int i = 0; i < 10; ++i) pass(400ms);
  EXPECT_THAT(sent<Heartbeat>(), SizeIs(10));
}

TEST_F(FollowerTest, ALostMemberAbortsTheGroup) {
  connect();
  enter(roster(1));
  receive(roster(2, {}));
  const auto aborts = take<Abort>();
  ASSERT_THAT(aborts, SizeIs(1));
  EXPECT_EQ(aborts[0].roster, 1);
  EXPECT_THAT(aborts[0].reason, HasSubstr("worker b was removed"));
  // The coordinator knows why, so the failure is not reported.
  follower_.failed(now_, 1, "b", "the group was aborted");
  EXPECT_EQ(follower_.heartbeat().broken, 0);
  EXPECT_EQ(follower_.next(now_).kind, Kind::kForm);
}

TEST_F(FollowerTest, AFailureOfItsOwnIsReportedWithItsSuspect) {
  connect();
  enter(roster(1));
  take<Send>();
  follower_.failed(now_, 1, "b", "b is silent");
  const auto beats = sent<Heartbeat>();
  ASSERT_THAT(beats, SizeIs(1));
  EXPECT_EQ(beats[0].broken, 1);
  EXPECT_EQ(beats[0].suspect, "b");
  EXPECT_EQ(beats[0].group, 0);
  EXPECT_EQ(follower_.next(now_).kind, Kind::kWait) << "a group is never formed twice";
}

TEST_F(FollowerTest, APlannedChangeWaitsForTheCommit) {
  connect();
  enter(roster(1));
  EXPECT_EQ(follower_.commit_byte(), 0);
  receive(roster(2, {{"b", 5}, {"c", 6}}));
  EXPECT_THAT(take<Abort>(), IsEmpty());
  EXPECT_EQ(follower_.commit_byte(), 1);
  EXPECT_FALSE(follower_.committed(now_, 1, 0.1, 0)) << "nobody had known of it when this began";
  EXPECT_TRUE(follower_.committed(now_, 2, 0.1, 1));
  EXPECT_EQ(follower_.next(now_).roster->number, 2);
}

TEST_F(FollowerTest, ARosterThatDoesNotArriveIsReported) {
  connect();
  enter(roster(1));
  EXPECT_TRUE(follower_.committed(now_, 1, 0.1, 1)) << "others know of a newer roster";
  EXPECT_EQ(follower_.next(now_).kind, Kind::kWait);
  pass(9s);
  EXPECT_EQ(follower_.heartbeat().broken, 0);
  pass(2s);
  EXPECT_EQ(follower_.heartbeat().broken, 1);
}

TEST_F(FollowerTest, AnyNewerRosterEndsAnAttemptToForm) {
  connect();
  receive(roster(1));
  ASSERT_EQ(follower_.next(now_).kind, Kind::kForm);
  receive(roster(2, {{"b", 5}, {"c", 6}}));
  EXPECT_THAT(take<Abort>(), SizeIs(1));
  follower_.failed(now_, 1, "", "stopped");
  EXPECT_EQ(follower_.heartbeat().broken, 0);
  EXPECT_EQ(follower_.next(now_).roster->number, 2);
}

TEST_F(FollowerTest, WhoIsFaultyIsReportedEvenIfTheGroupWasToBeAborted) {
  connect();
  enter(roster(1));
  receive(roster(2, {}));
  take<Abort>();
  follower_.failed(now_, 1, "", "its state differs", "c");
  EXPECT_EQ(follower_.heartbeat().broken, 1);
  EXPECT_EQ(follower_.heartbeat().faulty, "c");
}

TEST_F(FollowerTest, AnOrderToAbortIsNotLostBetweenFormingAndFormed) {
  connect();
  receive(roster(1));
  ASSERT_EQ(follower_.next(now_).kind, Kind::kForm);
  receive(roster(2, {}));
  take<Abort>();
  follower_.formed(now_, 1);
  EXPECT_THAT(take<Abort>(), SizeIs(1));
}

TEST_F(FollowerTest, AnOfferIsSentAgainAfterAReconnection) {
  connect();
  receive(roster(1));
  ASSERT_EQ(follower_.next(now_).kind, Kind::kForm);
  follower_.offer(now_, 1, std::string(kTrainers), "address");
  EXPECT_THAT(sent<AddressOffer>(), SizeIs(1));
  follower_.disconnected(now_);
  pass(1s);
  follower_.connected(now_);
  follower_.received(now_, Welcome{2s, 400ms});
  const auto again = sent<AddressOffer>();
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].blob, "address");
}

TEST_F(FollowerTest, OnlyTheWorkersThreadRejoinsAfterARemoval) {
  connect();
  enter(roster(1));
  const WorkerKey before = follower_.key();
  follower_.received(now_, Removed{"its lease expired", RemovalCause::kLeaseExpired});
  EXPECT_THAT(take<Abort>(), SizeIs(1));
  pass(30s);
  EXPECT_THAT(take<Connect>(), IsEmpty());
  follower_.failed(now_, 1, "", "aborted");
  const Instruction told = follower_.next(now_);
  EXPECT_EQ(told.kind, Kind::kRejoined);
  EXPECT_EQ(told.reason, "its lease expired");
  follower_.tick(now_);
  EXPECT_THAT(take<Connect>(), SizeIs(1));
  EXPECT_NE(follower_.key(), before);
  EXPECT_EQ(follower_.newest()->number, 0);
}

TEST_F(FollowerTest, AHeartbeatSaysForHowLongNothingHasChanged) {
  connect();
  enter(roster(1));
  take<Send>();
  follower_.set_activity(now_, Activity::kComputing);
  now_ += 150ms;
  follower_.progress(now_);
  pass(400ms);
  EXPECT_EQ(sent<Heartbeat>().back().still, 400ms);
  pass(400ms);
  EXPECT_EQ(sent<Heartbeat>().back().still, 800ms);
  now_ += 30ms;
  follower_.set_activity(now_, Activity::kComputing);
  pass(370ms);
  EXPECT_EQ(sent<Heartbeat>().back().still, 1200ms) << "it was at that already";
  now_ += 30ms;
  follower_.set_activity(now_, Activity::kWaiting);
  pass(370ms);
  EXPECT_EQ(sent<Heartbeat>().back().still, 370ms);
}

TEST_F(FollowerTest, AHungWorkerThatWasRemovedExits) {
  connect();
  enter(roster(1));
  follower_.received(now_, Removed{"it hangs", RemovalCause::kHung});
  pass(4s);
  EXPECT_THAT(take<ExitStuck>(), IsEmpty());
  pass(2s);
  EXPECT_THAT(take<ExitStuck>(), SizeIs(1));
}

TEST_F(FollowerTest, ARemovedWorkerThatStillMakesProgressDoesNotExit) {
  connect();
  enter(roster(1));
  follower_.received(now_, Removed{"its lease expired", RemovalCause::kLeaseExpired});
  for (int i = 0; i < 10; ++i) {
    follower_.progress(now_);
    pass(59s);
  }
  EXPECT_THAT(take<ExitStuck>(), IsEmpty());
  pass(61s);
  pass(61s);
  EXPECT_THAT(take<ExitStuck>(), SizeIs(1));
}

TEST_F(FollowerTest, AWorkerThatLeavesSaysSoAndWaitsForItsRelease) {
  connect();
  enter(roster(1));
  follower_.leave(now_);
  Roster next = roster(2, {{"b", 5}});
  next.members.erase(next.members.begin());
  next.leaving = {follower_.key()};
  receive(next);
  EXPECT_THAT(take<Abort>(), IsEmpty());
  EXPECT_TRUE(follower_.committed(now_, 1, 0.1, 1));
  take<Send>();
  EXPECT_EQ(follower_.next(now_).kind, Kind::kWait);
  const auto beats = sent<Heartbeat>();
  ASSERT_THAT(beats, SizeIs(1));
  EXPECT_EQ(beats[0].activity, Activity::kLeft);
  follower_.received(now_, Released{});
  EXPECT_EQ(follower_.next(now_).kind, Kind::kReleased);
}

TEST_F(FollowerTest, AReleaseThatComesEarlyStillLetsItSayThatItLeft) {
  connect();
  enter(roster(1, {}));
  follower_.leave(now_);
  Roster next = roster(2, {});
  next.members.clear();
  next.waiting = true;
  next.leaving = {follower_.key()};
  receive(next);
  follower_.received(now_, Released{});
  EXPECT_TRUE(follower_.committed(now_, 1, 0.1, 1));
  take<Send>();
  EXPECT_EQ(follower_.next(now_).kind, Kind::kReleased);
  const auto beats = sent<Heartbeat>();
  ASSERT_THAT(beats, SizeIs(1));
  EXPECT_EQ(beats[0].activity, Activity::kLeft);
}

TEST_F(FollowerTest, AFinishedJobDoesNotAbortTheGroup) {
  connect();
  enter(roster(1));
  follower_.received(now_, Ended{true, "done"});
  EXPECT_THAT(take<Abort>(), IsEmpty());
  follower_.failed(now_, 1, "", "");
  EXPECT_EQ(follower_.next(now_).kind, Kind::kFinished);
}

TEST_F(FollowerTest, AStoppedJobAbortsTheGroup) {
  connect();
  enter(roster(1));
  follower_.received(now_, Ended{false, "interrupted"});
  EXPECT_THAT(take<Abort>(), SizeIs(1));
  follower_.failed(now_, 1, "", "aborted");
  EXPECT_EQ(follower_.next(now_).kind, Kind::kStopped);
}

TEST_F(FollowerTest, AWorkerWithoutACoordinatorGivesUpOnlyWithoutAGroup) {
  connect();
  enter(roster(1));
  follower_.disconnected(now_);
  pass(10min);
  EXPECT_FALSE(follower_.committed(now_, 5, 0.1, 0)) << "it trains on";
  follower_.failed(now_, 1, "", "the group failed");
  EXPECT_EQ(follower_.next(now_).kind, Kind::kWait) << "from now on it looks for one";
  pass(61s);
  EXPECT_EQ(follower_.next(now_).kind, Kind::kOrphaned);
}

TEST_F(FollowerTest, ARefusalDoesNotEndAGroupThatTrains) {
  connect();
  enter(roster(1));
  follower_.disconnected(now_);
  pass(1s);
  follower_.connected(now_);
  follower_.received(now_, Refused{"this is the coordinator of another job", false});
  EXPECT_THAT(take<Abort>(), IsEmpty());
  EXPECT_FALSE(follower_.committed(now_, 1, 0.1, 0));
  pass(1s);
  EXPECT_THAT(take<Connect>(), SizeIs(1)) << "its own coordinator may be back";
  follower_.failed(now_, 1, "", "the group failed");
  EXPECT_EQ(follower_.next(now_).kind, Kind::kWait);
  follower_.connected(now_);
  follower_.received(now_, Refused{"this is the coordinator of another job", false});
  EXPECT_EQ(follower_.next(now_).kind, Kind::kRefused);
}

// A worker that waits for the addresses of the others must not wait for ever.
class FormingFollowerTest : public FollowerTest {
 protected:
  void SetUp() override {
    connect();
    receive(roster(1));
    ASSERT_EQ(follower_.next(now_).kind, Kind::kForm);
    follower_.offer(now_, 1, std::string(kTrainers), "address");
  }
  Kind told_after_abort() {
    EXPECT_THAT(take<Abort>(), SizeIs(1));
    follower_.failed(now_, 1, "", "aborted");
    return follower_.next(now_).kind;
  }
};

TEST_F(FormingFollowerTest, EndsWhenTheJobIsFinished) {
  follower_.received(now_, Ended{true, "done"});
  EXPECT_EQ(told_after_abort(), Kind::kFinished);
}

TEST_F(FormingFollowerTest, EndsWhenItIsRefused) {
  follower_.disconnected(now_);
  pass(1s);
  follower_.connected(now_);
  follower_.received(now_, Refused{"this is the coordinator of another job", false});
  EXPECT_EQ(told_after_abort(), Kind::kRefused);
}

TEST_F(FormingFollowerTest, EndsWhenThereIsNoCoordinatorForLong) {
  follower_.disconnected(now_);
  pass(59s);
  EXPECT_THAT(take<Abort>(), IsEmpty());
  pass(2s);
  EXPECT_EQ(told_after_abort(), Kind::kOrphaned);
}

TEST_F(FormingFollowerTest, TakesOnlyTheAddressesOfAllMembers) {
  const auto few = std::make_shared<const std::vector<std::string>>(1, "x");
  follower_.received(now_, Addresses{1, std::string(kTrainers), few, "", false});
  EXPECT_THAT(take<AddressesReady>(), IsEmpty());
}

TEST_F(FollowerTest, AWorkerWhoseIdIsTakenGivesUpAndSaysWhy) {
  for (int i = 0; i < 130; ++i) {
    follower_.tick(now_);
    follower_.connected(now_);
    follower_.received(now_, Refused{"another process is worker a", true});
    now_ += 600ms;
  }
  const Instruction told = follower_.next(now_);
  EXPECT_EQ(told.kind, Kind::kOrphaned);
  EXPECT_EQ(told.reason, "another process is worker a");
}

TEST_F(FollowerTest, ADamagedDifferenceIsNotUsed) {
  connect();
  RosterDiff diff = difference(Roster{}, roster(1));
  diff.checksum ^= 1;
  follower_.received(now_, diff);
  EXPECT_EQ(follower_.newest()->number, 0);
  EXPECT_THAT(take<Disconnect>(), SizeIs(1));
  pass(1s);
  EXPECT_THAT(take<Connect>(), SizeIs(1));
}

}  // namespace
}  // namespace muster::roster
