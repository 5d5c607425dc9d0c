#include "muster/ps/push_queue.h"

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

class PushQueueTest : public ::testing::Test, public PushLinks {
 protected:
  void send(const ServerKey& to, ShardNumber shard, uint64_t epoch, const Push& push) override {
    sent_.push_back({to.id, shard, epoch, push.number});
  }
  struct Sent {
    std::string to;
    ShardNumber shard;
    uint64_t epoch;
    uint64_t number;
    bool operator==(const Sent&) const = default;
  };
  std::vector<Sent> sent() { return std::exchange(sent_, {}); }
  static ServerMap map_of(uint64_t epoch, const std::string& id) {
    ServerMap map;
    map.epoch = epoch;
    map.servers.push_back({{id, 1}, true, {}, 0, {}});
    return map;
  }
  static Bytes bytes() { return Bytes(std::string("p")); }
  PushAnswer answer(uint64_t number, PushVerdict verdict, uint64_t epoch = 1) {
    return {0, 9, number, verdict, epoch, "why"};
  }

  std::vector<Sent> sent_;
  PushQueue queue_{9, 2, 2, *this};
};

TEST_F(PushQueueTest, PushesWaitForTheFirstMap) {
  queue_.push(0, bytes());
  EXPECT_TRUE(sent().empty());
  EXPECT_EQ(queue_.primary_of(0), nullptr);
  queue_.enter(map_of(1, "a"));
  EXPECT_EQ(sent(), (std::vector<Sent>{{"a", 0, 1, 1}}));
}

TEST_F(PushQueueTest, EachShardHasItsOwnNumbers) {
  queue_.enter(map_of(1, "a"));
  EXPECT_EQ(queue_.push(0, bytes()), 1U);
  EXPECT_EQ(queue_.push(1, bytes()), 1U);
  EXPECT_EQ(queue_.push(0, bytes()), 2U);
  EXPECT_EQ(queue_.unanswered(), 3U);
}

TEST_F(PushQueueTest, WhatWasNotAnsweredIsRepeatedInItsOrder) {
  queue_.enter(map_of(1, "a"));
  for (int i = 0; i < 3; ++i) queue_.push(0, bytes());
  sent();
  ASSERT_TRUE(queue_.answered(answer(1, PushVerdict::kApplied)).ok());
  queue_.enter(map_of(2, "b"));
  EXPECT_EQ(sent(), (std::vector<Sent>{{"b", 0, 2, 2}, {"b", 0, 2, 3}}));
  queue_.reconnected({"b", 1});
  EXPECT_EQ(sent().size(), 2U);
  queue_.reconnected({"a", 1});
  queue_.enter(map_of(1, "a"));  // an old one
  EXPECT_TRUE(sent().empty());
  ASSERT_TRUE(queue_.answered(answer(3, PushVerdict::kApplied)).ok());
  EXPECT_EQ(queue_.unanswered(), 0U);
}

TEST_F(PushQueueTest, KnowsWhoseAnswersItAwaits) {
  queue_.enter(map_of(1, "a"));
  EXPECT_FALSE(queue_.awaits({"a", 1}));
  queue_.push(0, bytes());
  EXPECT_TRUE(queue_.awaits({"a", 1}));
  EXPECT_FALSE(queue_.awaits({"a", 2})) << "the process that replaces it";
  queue_.enter(map_of(2, "b"));
  EXPECT_FALSE(queue_.awaits({"a", 1}));
  EXPECT_TRUE(queue_.awaits({"b", 1}));
  ASSERT_TRUE(queue_.answered(answer(1, PushVerdict::kApplied, 2)).ok());
  EXPECT_FALSE(queue_.awaits({"b", 1}));
}

TEST_F(PushQueueTest, AServerThatIsLateIsTriedAgain) {
  queue_.enter(map_of(5, "a"));
  queue_.push(0, bytes());
  sent();
  ASSERT_TRUE(queue_.answered(answer(1, PushVerdict::kOtherEpoch, 7)).ok());
  EXPECT_FALSE(queue_.wants_retry()) << "the newer map is on its way";
  ASSERT_TRUE(queue_.answered(answer(1, PushVerdict::kOtherEpoch, 4)).ok());
  EXPECT_TRUE(queue_.wants_retry());
  queue_.retry();
  EXPECT_EQ(sent().size(), 1U);
  EXPECT_FALSE(queue_.wants_retry());
}

TEST_F(PushQueueTest, AGapIsFilledAndForgettingIsAnError) {
  queue_.enter(map_of(1, "a"));
  for (int i = 0; i < 3; ++i) queue_.push(0, bytes());
  sent();
  ASSERT_TRUE(queue_.answered(answer(2, PushVerdict::kGap)).ok());
  EXPECT_EQ(sent(), (std::vector<Sent>{{"a", 0, 1, 2}, {"a", 0, 1, 3}}));
  ASSERT_TRUE(queue_.answered(answer(2, PushVerdict::kGap)).ok());
  EXPECT_TRUE(sent().empty()) << "once is enough";
  ASSERT_TRUE(queue_.answered(answer(2, PushVerdict::kApplied)).ok());
  EXPECT_FALSE(queue_.answered(answer(1, PushVerdict::kGap)).ok());
  EXPECT_FALSE(queue_.answered(answer(3, PushVerdict::kMalformed)).ok());
  queue_.push(0, bytes());
  EXPECT_TRUE(sent().empty()) << "nothing is sent after an error";
}

}  // namespace
}  // namespace muster::ps
