#include "muster/roster/follow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::roster {
namespace {

Roster roster(RosterNumber number, const std::vector<WorkerKey>& keys) {
  Roster result;
  result.number = number;
  result.reason = "because";
  for (const WorkerKey& key : keys) result.members.emplace_back().key = key;
  return result;
}

const WorkerKey kA{"a", 1}, kB{"b", 2}, kC{"c", 3};

TEST(Follow, ALostMemberBreaksTheGroupAtOnce) {
  const auto reason = why_abort(roster(1, {kA, kB, kC}), roster(2, {kA, kC}));
  ASSERT_TRUE(reason);
  EXPECT_THAT(*reason, testing::HasSubstr("worker b was removed: because"));
}

TEST(Follow, AJoinerDoesNot) {
  EXPECT_FALSE(why_abort(roster(1, {kA, kB}), roster(2, {kA, kB, kC})));
}

TEST(Follow, WhoLeavesByPlanDoesNotUntilItIsLostToo) {
  Roster next = roster(2, {kA});
  next.leaving = {kB};
  EXPECT_FALSE(why_abort(roster(1, {kA, kB}), next));
  EXPECT_TRUE(why_abort(roster(1, {kA, kB}), roster(3, {kA})));
}

TEST(Follow, ASlotThatWasStartedAgainIsAnotherMember) {
  EXPECT_TRUE(why_abort(roster(1, {kA, kB}), roster(2, {kA, {"b", 99}})));
}

TEST(Follow, AJoinerThatDiedBeforeTheSwitchBreaksOnlyTheGroupItIsIn) {
  const Roster last = roster(3, {kA, kB});
  EXPECT_FALSE(why_abort(roster(1, {kA, kB}), last));
  EXPECT_TRUE(why_abort(roster(2, {kA, kB, kC}), last));
}

TEST(Follow, AVoidGroupIsLeftEvenIfAllAreStillIn) {
  Roster next = roster(2, {kA, kB});
  next.invalid_through = 1;
  EXPECT_TRUE(why_abort(roster(1, {kA, kB}), next));
}

TEST(Follow, OldNewsIsNoNews) {
  EXPECT_FALSE(why_abort(roster(2, {kA, kB}), roster(1, {kA})));
  EXPECT_FALSE(why_abort(roster(2, {kA, kB}), roster(2, {kA, kB})));
}

TEST(Follow, TheCommitDecidesWhenAllSwitch) {
  const Roster one = roster(1, {kA, kB});
  const Roster two = roster(2, {kA, kB, kC});
  EXPECT_EQ(commit_byte(one, one), 0);
  EXPECT_EQ(commit_byte(one, two), 1);
  EXPECT_EQ(after_commit(0, one, one), AfterCommit::kGoOn);
  // It came while the commit was under way: nobody else may know it, so it waits for the next one.
  EXPECT_EQ(after_commit(0, one, two), AfterCommit::kGoOn);
  EXPECT_EQ(after_commit(1, one, two), AfterCommit::kSwitch);
  EXPECT_EQ(after_commit(1, one, one), AfterCommit::kWait);
}

TEST(Follow, WithoutAGroup) {
  const Roster one = roster(1, {kA, kB});
  EXPECT_EQ(next_move(kA, false, Roster{}, 0), Next::kWait);
  EXPECT_EQ(next_move(kA, false, one, 0), Next::kForm);
  EXPECT_EQ(next_move(kA, false, one, 1), Next::kWait) << "its group of roster 1 failed";
  EXPECT_EQ(next_move(kC, true, one, 0), Next::kGo);
  EXPECT_EQ(next_move(kC, false, one, 0), Next::kRemoved);
  Roster few = one;
  few.waiting = true;
  EXPECT_EQ(next_move(kA, false, few, 0), Next::kWait);
}

}  // namespace
}  // namespace muster::roster
