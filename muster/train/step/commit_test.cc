#include "muster/train/step/commit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace muster::train {
namespace {

// What an allreduce with the maximum makes of two messages.
CommitMessage combine(CommitMessage a, const CommitMessage& b) {
  for (size_t i = 0; i < a.bytes().size(); ++i) a.bytes()[i] = std::max(a.bytes()[i], b.bytes()[i]);
  return a;
}

TEST(CommitMessage, TheMaximumSelectsLanesAndCombinesBlocks) {
  CommitMessage a(3, 4);
  CommitMessage b(3, 4);
  const LaneResult first{-2.718281828, 16, -1, 1234567890123456789U};
  const LaneResult last{1e-300, 15, 7, 5};
  a.set_lane(0, first);
  b.set_lane(3, last);
  a.seen()[0] = 130;
  b.seen()[0] = 129;
  b.seen()[2] = 255;
  a.set_flags({.newer_roster = 0, .evaluate = 1, .time_over = 0, .stop = 2});
  b.set_flags({.newer_roster = 1, .evaluate = 0, .time_over = 0, .stop = 15});
  for (const auto& both : {combine(a, b), combine(b, a)}) {
    EXPECT_EQ(both.lane(0), first);
    EXPECT_EQ(both.lane(1), LaneResult{});
    EXPECT_EQ(both.lane(3), last);
    EXPECT_EQ(both.seen()[0], 130);
    EXPECT_EQ(both.seen()[1], 0);
    EXPECT_EQ(both.seen()[2], 255);
    EXPECT_EQ(both.flags(),
              (CommitFlags{.newer_roster = 1, .evaluate = 1, .time_over = 0, .stop = 15}));
  }
}

TEST(CommitMessage, TellsWhetherAllStatesAreTheSame) {
  const auto with = [](uint64_t hash) {
    CommitMessage message(1, 1);
    message.set_state_hash(hash);
    return message;
  };
  EXPECT_TRUE(CommitMessage(1, 1).states_agree());  // no audit
  for (const uint64_t hash :
       {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{0x0123456789abcdef}}) {
    EXPECT_TRUE(combine(with(hash), with(hash)).states_agree());
    for (int bit = 0; bit < 64; ++bit) {
      EXPECT_FALSE(combine(with(hash), with(hash ^ (uint64_t{1} << bit))).states_agree());
    }
  }
}

TEST(CommitMessage, TellsWhichBlocksAreDamagedWhoeverFoundThem) {
  CommitMessage a(1, 5);
  CommitMessage b(1, 5);
  EXPECT_TRUE(a.damaged_blocks().empty());
  LaneResult whole{0.5, 16, -1, 99};
  whole.replaced = 3;
  a.set_lane(0, whole);
  a.set_lane(1, {.damaged = 700});
  b.set_lane(2, {.damaged = 12});
  b.set_lane(3, {.damaged = 700});
  b.set_lane(4, {.damaged = (int64_t{1} << 32) - 2});  // the last of as many as there can be
  for (const auto& both : {combine(a, b), combine(b, a)}) {
    EXPECT_EQ(both.damaged_blocks(), (std::vector<uint64_t>{12, 700, (uint64_t{1} << 32) - 2}));
    EXPECT_EQ(both.lane(0), whole);
    EXPECT_EQ(both.lane(1), (LaneResult{.damaged = 700}));
    EXPECT_FALSE(both.first_not_finite());
  }
  EXPECT_TRUE(combine(CommitMessage(1, 2), CommitMessage(1, 2)).damaged_blocks().empty());
}

TEST(CommitMessage, CarriesLossesThatAreNotFinite) {
  CommitMessage message(0, 1);
  message.set_lane(0, {std::numeric_limits<double>::quiet_NaN(), 1, 0, 0});
  EXPECT_TRUE(std::isnan(message.lane(0).loss));
  EXPECT_EQ(message.lane(0).not_finite, 0);
  message.clear();
  EXPECT_EQ(message.lane(0), LaneResult{});
}

}  // namespace
}  // namespace muster::train
