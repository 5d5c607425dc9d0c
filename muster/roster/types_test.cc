#include "muster/roster/types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/random.h"

namespace muster::roster {
namespace {

Member member(const std::string& id, uint64_t incarnation, std::vector<int32_t> lanes) {
  return {
      .key = {id, incarnation}, .host = "host-" + id, .lane_threads = 2, .lanes = std::move(lanes)};
}

Roster three() {
  return {.number = number_after(0, 7),
          .job = "lenet",
          .waiting = false,
          .invalid_through = 0,
          .members = {member("0", 10, {0, 1}), member("1", 11, {2}), member("2", 12, {3})},
          .leaving = {},
          .reason = "the first"};
}

TEST(RosterNumber, CountsOnWithinATermAndOverARestart) {
  const RosterNumber first = number_after(0, 7);
  const RosterNumber second = number_after(first, 7);
  EXPECT_EQ(sequence_of(first), 1);
  EXPECT_EQ(sequence_of(second), 2);
  const RosterNumber restarted = number_after(second, 8);
  EXPECT_EQ(term_of(restarted), 8);
  EXPECT_EQ(sequence_of(restarted), 3);
  EXPECT_GT(restarted, second);
}

TEST(RosterNumber, GrowsEvenIfTheClockWasSetBack) {
  const RosterNumber old = number_after(number_after(0, 100), 100);
  EXPECT_GT(number_after(old, 3), old);
}

TEST(RosterNumber, ACoordinatorThatHeardNothingStillIssuesAnotherNumber) {
  EXPECT_NE(number_after(0, 7), number_after(0, 8));
}

TEST(RosterNumber, GrowsWhenTheCountIsFull) {
  const RosterNumber full = (RosterNumber{7} << kSequenceBits) | ((1U << kSequenceBits) - 1);
  EXPECT_GT(number_after(full, 7), full);
}

TEST(RosterDiff, OneLeavesOneComesIsTwoEntries) {
  const Roster from = three();
  Roster to = from;
  to.number = number_after(from.number, 7);
  to.members.erase(to.members.begin() + 1);
  to.members.push_back(member("1", 99, {2}));
  to.reason = "worker 1 was started again";
  const RosterDiff diff = difference(from, to);
  EXPECT_THAT(diff.removed, testing::ElementsAre(WorkerKey{"1", 11}));
  EXPECT_THAT(diff.changed, testing::ElementsAre(member("1", 99, {2})));
  EXPECT_EQ(apply(from, diff).value(), to);
}

TEST(RosterDiff, ToNothingIsAllOfIt) {
  const Roster to = three();
  EXPECT_EQ(apply(Roster{}, difference(Roster{}, to)).value(), to);
}

TEST(RosterDiff, OnAnotherBaseIsRefused) {
  const Roster from = three();
  Roster to = from;
  to.number = number_after(from.number, 7);
  const RosterDiff diff = difference(from, to);
  Roster other = from;
  other.number += 5;
  EXPECT_FALSE(apply(other, diff).ok());
  // The same number with other contents must not pass either.
  other = from;
  other.members[0].lanes = {5};
  EXPECT_FALSE(apply(other, diff).ok());
}

TEST(RosterDiff, RandomChangesComeOutAsTheyWentIn) {
  RandomStream random(1, Purpose::kUser);
  Roster now = three();
  for (int round = 0; round < 500; ++round) {
    Roster next = now;
    next.number = number_after(now.number, 7);
    next.waiting = random.below(4) == 0;
    next.invalid_through = random.below(3) == 0 ? now.number : now.invalid_through;
    std::erase_if(next.members, [&](const Member&) { return random.below(3) == 0; });
    for (Member& some : next.members) {
      if (random.below(3) == 0) some.lanes.push_back(static_cast<int32_t>(random.below(100)));
    }
    for (uint64_t more = random.below(3); more > 0; --more) {
      next.members.push_back(member(std::to_string(random.below(1000)), random.next_u64(), {}));
    }
    next.leaving.clear();
    if (!now.members.empty() && random.below(2) == 0) next.leaving = {now.members[0].key};
    const auto result = apply(now, difference(now, next));
    ASSERT_TRUE(result.ok()) << result.error().message();
    ASSERT_EQ(*result, next);
    now = next;
  }
}

TEST(Roster, ChecksumSeesEveryField) {
  const Roster roster = three();
  std::vector<Roster> others(8, roster);
  others[0].number += 1;
  others[1].job = "other";
  others[2].waiting = true;
  others[3].invalid_through = 3;
  others[4].members[1].lanes = {2, 3};
  others[5].members[0].key.incarnation += 1;
  others[6].leaving = {{"1", 11}};
  others[7].reason = "";
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT_NE(others[i].checksum(), roster.checksum()) << i;
  }
}

TEST(StateReport, ComesBackAsItWasSent) {
  const StateReport report{.rollback = {0xfedcba9876543210, 55},
                           .has_state = true,
                           .position = {123456789012, 3},
                           .holds_sums = true,
                           .has_message = true,
                           .message_of = {123456789011, 2},
                           .restorable = 77};
  const std::string bytes = report.encode();
  ASSERT_EQ(bytes.size(), StateReport::kBytes);
  EXPECT_EQ(StateReport::decode(bytes).value(), report);
}

TEST(StateReport, DamagedOnesAreRefused) {
  StateReport report;
  report.has_state = true;
  report.position = {5, 0};
  const std::string good = report.encode();
  EXPECT_FALSE(StateReport::decode(good.substr(1)).ok());
  EXPECT_FALSE(StateReport::decode("").ok());
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_FALSE(StateReport::decode(bad).ok()) << i;
  }
}

TEST(Options, ThatCannotWorkAreRefused) {
  EXPECT_TRUE(Options{}.validate().ok());
  Options options;
  options.min_workers = 5;
  options.max_workers = 4;
  EXPECT_FALSE(options.validate().ok());
  options = {};
  options.lease = options.heartbeat;
  EXPECT_FALSE(options.validate().ok());
  options = {};
  options.lanes = 2;
  options.min_workers = 3;
  EXPECT_THAT(options.validate().error().message(), testing::HasSubstr("only 2 lanes"));
}

Member member(int id, uint64_t incarnation, std::vector<int32_t> lanes) {
  Member made;
  made.key = {std::to_string(id), incarnation};
  made.host = "host";
  made.lanes = std::move(lanes);
  return made;
}

// Large and small rosters are looked through in different ways; both give the roster that was
// meant.
TEST(RosterDiff, GivesTheNextRosterForManyMembers) {
  for (const int count : {1, 10, 16, 17, 40, 1000}) {
    Roster first;
    first.number = 1;
    for (int i = 0; i < count; ++i) {
      first.members.push_back(member(i, 7, {i}));
    }
    Roster second = first;
    second.number = 2;
    std::erase_if(second.members, [](const Member& m) { return m.key.id.ends_with("3"); });
    for (Member& one : second.members) one.lanes.push_back(one.lanes[0] + count);
    for (int i = 0; i < 10; ++i) {
      second.members.push_back(member(count + i, 8, {}));
    }
    // One that was started again: the same id, another incarnation.
    second.members.erase(second.members.begin());
    second.members.push_back(member(0, 9, {0}));
    const auto next = apply(first, difference(first, second));
    ASSERT_TRUE(next.ok()) << count << ": " << next.error().message();
    EXPECT_EQ(*next, second) << count;
  }
}

}  // namespace
}  // namespace muster::roster
