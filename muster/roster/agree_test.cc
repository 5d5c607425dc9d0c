#include "muster/roster/agree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::roster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// After `step` commits; the last one it saw itself.
StateReport at(uint64_t step) {
  StateReport report;
  report.has_state = true;
  report.position = {step, 0};
  if (step > 0) {
    report.has_message = true;
    report.message_of = {step - 1, 0};
  }
  return report;
}
// At `step`, and inside the commit of the next one.
StateReport in_commit(uint64_t step) {
  StateReport report = at(step);
  report.holds_sums = true;
  return report;
}
StateReport joiner() { return {}; }

Agreement agreed(std::vector<StateReport> reports) { return agree(reports); }

TEST(Agree, NobodySawTheCommitSoAllDoTheStepAgain) {
  // One had the sums, another did not get that far: it makes no difference.
  const Agreement result = agreed({in_commit(7), at(7), in_commit(7)});
  EXPECT_EQ(result.position, (Position{7, 0}));
  EXPECT_THAT(result.actions, ElementsAre(Action::kGoOn, Action::kGoOn, Action::kGoOn));
  EXPECT_EQ(result.message_from, -1);
}

TEST(Agree, OneSawTheCommitSoTheOthersRollForward) {
  const Agreement result = agreed({in_commit(7), at(8), in_commit(7)});
  EXPECT_EQ(result.position, (Position{8, 0}));
  EXPECT_THAT(result.actions,
              ElementsAre(Action::kRollForward, Action::kGoOn, Action::kRollForward));
  EXPECT_EQ(result.message_from, 1);
}

TEST(Agree, AJoinerTakesTheStateFromThoseWhoHaveIt) {
  const Agreement result = agreed({at(8), joiner(), in_commit(7), at(8)});
  EXPECT_THAT(result.actions,
              ElementsAre(Action::kGoOn, Action::kReceive, Action::kRollForward, Action::kGoOn));
  EXPECT_THAT(result.sources, ElementsAre(0, 2, 3));
}

TEST(Agree, WithoutFullSumsNobodyRollsForward) {
  const Agreement result = agreed({at(8), at(7)});
  EXPECT_THAT(result.actions, ElementsAre(Action::kGoOn, Action::kReceive));
  EXPECT_THAT(result.sources, ElementsAre(0));
}

TEST(Agree, OneThatWasAwayForLongIsAJoiner) {
  const Agreement result = agreed({in_commit(3), at(8), at(8)});
  EXPECT_THAT(result.actions, ElementsAre(Action::kReceive, Action::kGoOn, Action::kGoOn));
}

TEST(Agree, WhoGotTheStateByTransferHasNoMessageToGive) {
  // All who saw the commit of step 8 died, except one that had just taken over their state.
  StateReport taken = at(8);
  taken.has_message = false;
  const Agreement result = agreed({in_commit(7), taken});
  EXPECT_THAT(result.actions, ElementsAre(Action::kReceive, Action::kGoOn));
}

TEST(Agree, ACommitThatSaidOnceMoreIsRolledForwardToo) {
  // Rank 1 saw the commit that found an overflow: it is at the second attempt of the same step.
  StateReport again = at(7);
  again.position = {7, 1};
  again.message_of = {7, 0};
  Agreement result = agreed({in_commit(7), again});
  EXPECT_EQ(result.position, (Position{7, 1}));
  EXPECT_THAT(result.actions, ElementsAre(Action::kRollForward, Action::kGoOn));
  // Sums of the first attempt are of no use for the message of the second.
  StateReport done = at(8);
  done.message_of = {7, 1};
  result = agreed({in_commit(7), done});
  EXPECT_THAT(result.actions, ElementsAre(Action::kReceive, Action::kGoOn));
}

TEST(Agree, TheNewestStateWinsWhoeverHasIt) {
  // Rank 2 was asleep, was put out and came back: it had seen a commit that nobody else saw.
  const Agreement result = agreed({in_commit(7), in_commit(7), at(8)});
  EXPECT_EQ(result.position, (Position{8, 0}));
  EXPECT_EQ(result.message_from, 2);
}

TEST(Agree, WithoutAnyStateAllBeginAtTheBeginning) {
  const Agreement result = agreed({joiner(), joiner()});
  EXPECT_EQ(result.position, (Position{0, 0}));
  EXPECT_THAT(result.actions, ElementsAre(Action::kRestore, Action::kRestore));
}

TEST(Agree, WithoutAnyStateTheNewestCheckpointCounts) {
  StateReport old = joiner();
  old.restorable = 500;
  StateReport newest = joiner();
  newest.restorable = 1000;
  const Agreement result = agreed({old, newest, joiner()});
  EXPECT_EQ(result.position, (Position{1000, 0}));
  EXPECT_THAT(result.actions, ElementsAre(Action::kReceive, Action::kRestore, Action::kReceive));
  EXPECT_THAT(result.sources, ElementsAre(1));
}

TEST(Agree, AStateInMemoryIsBetterThanACheckpoint) {
  StateReport other = joiner();
  other.restorable = 500;
  EXPECT_EQ(agreed({at(501), other}).position, (Position{501, 0}));
}

TEST(Agree, ANewerCheckpointIsBetterThanAStaleState) {
  // Rank 0 was cut off at step 2. Others came to step 33, saved step 32, and are gone.
  StateReport stale = in_commit(2);
  stale.restorable = 32;
  Agreement result = agreed({stale});
  EXPECT_EQ(result.position, (Position{32, 0}));
  EXPECT_THAT(result.actions, ElementsAre(Action::kRestore));
  EXPECT_THAT(result.sources, ElementsAre(0));
  EXPECT_THAT(result.reason, HasSubstr("checkpoint of step 32"));
  EXPECT_THAT(result.reason, HasSubstr("after step 2"));
  // Who cannot read it gets it from those who can, and nobody rolls forward on what he had.
  result = agreed({in_commit(2), stale, at(3), joiner()});
  EXPECT_THAT(result.actions,
              ElementsAre(Action::kReceive, Action::kRestore, Action::kReceive, Action::kReceive));
  EXPECT_EQ(result.message_from, -1);
}

TEST(Agree, ACheckpointOfTheSameStepIsNotLoaded) {
  StateReport here = at(32);
  here.restorable = 32;
  EXPECT_THAT(agreed({here}).actions, ElementsAre(Action::kGoOn));
  // It knows that the step after it must be done with other scales: that is newer.
  here.position = {32, 1};
  const Agreement result = agreed({here, here});
  EXPECT_EQ(result.position, (Position{32, 1}));
  EXPECT_THAT(result.actions, ElementsAre(Action::kGoOn, Action::kGoOn));
}

TEST(Agree, ADeadWorkersCheckpointOfTheStepUnderWayCounts) {
  // Rank 0 died after it had seen, applied and saved a commit that nobody else saw.
  StateReport inside = in_commit(31);
  inside.restorable = 32;
  StateReport retrying = inside;
  retrying.position = {31, 1};
  EXPECT_THAT(agreed({inside, retrying}).actions, ElementsAre(Action::kRestore, Action::kRestore));
}

TEST(Agree, WhatARollbackMadeVoidIsNotUsed) {
  StateReport knows;  // it noticed: gave up its state, and what was saved later does not count
  knows.rollback = {.number = 70, .step = 20};
  knows.restorable = 16;
  StateReport old = at(31);  // was suspended meanwhile
  old.restorable = 30;
  const auto agreement = agreed({old, knows, knows});
  EXPECT_THAT(agreement.actions, ElementsAre(Action::kReceive, Action::kRestore, Action::kRestore));
  EXPECT_EQ(agreement.position, (Position{16, 0}));
  EXPECT_EQ(agreement.rollback, knows.rollback);

  // Later the others are behind it, and still right.
  StateReport later = at(18);
  later.rollback = knows.rollback;
  EXPECT_THAT(agreed({old, later}).actions, ElementsAre(Action::kReceive, Action::kGoOn));
  // A newer rollback makes void what was computed since the older one.
  StateReport newer;
  newer.rollback = {.number = 90, .step = 4};
  newer.restorable = 3;
  EXPECT_THAT(agreed({later, newer}).actions, ElementsAre(Action::kReceive, Action::kRestore));
}

// For every pattern of who saw the commit, who held the sums, who is new and who has a checkpoint:
// each rank's action can be carried out with what it and the sources have, and nothing that anybody
// has is lost.
TEST(Agree, EveryActionCanBeCarriedOut) {
  const auto saved = [](StateReport report, uint64_t step) {
    report.restorable = step;
    return report;
  };
  const std::vector<StateReport> kinds = {joiner(),           at(6),          at(7),
                                          in_commit(7),       at(8),          in_commit(8),
                                          saved(joiner(), 7), saved(at(6), 8)};
  std::vector<size_t> pick(4, 0);
  int checked = 0;
  while (true) {
    std::vector<StateReport> reports;
    for (const size_t kind : pick) reports.push_back(kinds[kind]);
    const Agreement result = agreed(reports);
    ASSERT_EQ(result.actions.size(), reports.size());
    for (size_t rank = 0; rank < reports.size(); ++rank) {
      const StateReport& report = reports[rank];
      switch (result.actions[rank]) {
        case Action::kGoOn:
          ASSERT_TRUE(report.has_state && report.position == result.position);
          break;
        case Action::kRollForward: {
          ASSERT_TRUE(report.has_state && report.holds_sums);
          const StateReport& from = reports.at(static_cast<size_t>(result.message_from));
          ASSERT_TRUE(from.has_message && from.message_of == report.position);
          break;
        }
        case Action::kReceive:
          ASSERT_FALSE(result.sources.empty());
          break;
        case Action::kRestore:
          ASSERT_EQ(result.position, (Position{report.restorable, 0}));
          ASSERT_TRUE(!report.has_state || report.position < result.position);
          break;
      }
      ASSERT_GE(result.position.step, report.restorable);
      ASSERT_TRUE(!report.has_state || result.position >= report.position);
    }
    for (const int source : result.sources) {
      ASSERT_NE(result.actions[static_cast<size_t>(source)], Action::kReceive);
    }
    ++checked;
    size_t digit = 0;
    while (digit < pick.size() && ++pick[digit] == kinds.size()) pick[digit++] = 0;
    if (digit == pick.size()) break;
  }
  EXPECT_EQ(checked, 8 * 8 * 8 * 8);
}

TEST(Stripes, CoverTheStateOnceInEqualParts) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, uint64_t{1000003}}) {
    for (const size_t count : {1, 2, 3, 8, 11}) {
      std::vector<int> sources;
      for (size_t i = 0; i < count; ++i) sources.push_back(static_cast<int>(2 * i));
      uint64_t next = 0;
      const auto parts = stripes(bytes, sources, 5);
      for (const Stripe& stripe : parts) {
        EXPECT_EQ(stripe.offset, next);
        EXPECT_EQ(stripe.offset % 4096, 0);
        EXPECT_GT(stripe.bytes, 0);
        EXPECT_THAT(sources, testing::Contains(stripe.source));
        next += stripe.bytes;
      }
      EXPECT_EQ(next, bytes);
      EXPECT_LE(parts.size(), std::min<size_t>(count, 8));
    }
  }
  EXPECT_THAT(stripes(0, std::vector{3}, 0), IsEmpty());
}

TEST(Stripes, ReceiversSpreadOverManySources) {
  std::vector<int> sources(100);
  for (int i = 0; i < 100; ++i) sources[static_cast<size_t>(i)] = i;
  EXPECT_NE(stripes(1 << 20, sources, 1)[0].source, stripes(1 << 20, sources, 2)[0].source);
}

}  // namespace
}  // namespace muster::roster
