#include "muster/ps/questions.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

class QuestionsTest : public ::testing::Test, public Questions<std::string>::Links {
 protected:
  const ServerKey* primary_of(ShardNumber shard) const override {
    const auto found = primaries_.find(shard);
    return found == primaries_.end() ? nullptr : &found->second;
  }
  bool ask(const ServerKey& to, uint64_t request, ShardNumber shard,
           const std::string& what) override {
    if (!connected_) return false;
    sent_.push_back({to.id, request, shard, what});
    return true;
  }
  struct Sent {
    std::string to;
    uint64_t request;
    ShardNumber shard;
    std::string what;
    bool operator==(const Sent&) const = default;
  };
  std::vector<Sent> sent() { return std::exchange(sent_, {}); }

  const ServerKey a_{"a", 1};
  const ServerKey b_{"b", 1};
  std::map<ShardNumber, ServerKey> primaries_ = {{0, a_}, {1, b_}};
  bool connected_ = true;
  std::vector<Sent> sent_;
  Questions<std::string> questions_{*this};
};

TEST_F(QuestionsTest, WhoeverIsPrimaryIsAsked) {
  questions_.ask(0, "x");
  questions_.ask(1, "y");
  EXPECT_EQ(sent(), (std::vector<Sent>{{"a", 1, 0, "x"}, {"b", 2, 1, "y"}}));
  ASSERT_NE(questions_.find(2, 1), nullptr);
  EXPECT_EQ(*questions_.find(2, 1), "y");
  EXPECT_EQ(questions_.find(2, 0), nullptr) << "of another shard";
  questions_.answered(2);
  EXPECT_EQ(questions_.find(2, 1), nullptr);
}

TEST_F(QuestionsTest, WithoutAPrimaryOrAConnectionTheyWait) {
  questions_.ask(7, "x");
  connected_ = false;
  questions_.ask(0, "y");
  questions_.repeat();
  EXPECT_TRUE(sent().empty());
  connected_ = true;
  primaries_[7] = b_;
  questions_.repeat();
  EXPECT_EQ(sent(), (std::vector<Sent>{{"b", 1, 7, "x"}, {"a", 2, 0, "y"}}));
}

TEST_F(QuestionsTest, KnowsWhoseAnswersItAwaits) {
  EXPECT_FALSE(questions_.awaits(a_));
  connected_ = false;
  questions_.ask(0, "x");
  questions_.ask(7, "y");  // it has no primary
  EXPECT_TRUE(questions_.awaits(a_));
  EXPECT_FALSE(questions_.awaits(b_));
  primaries_[0] = b_;
  EXPECT_FALSE(questions_.awaits(a_));
  EXPECT_TRUE(questions_.awaits(b_));
  questions_.answered(1);
  EXPECT_FALSE(questions_.awaits(b_));
}

TEST_F(QuestionsTest, AnotherMapWithTheSamePrimaryAsksNobodyAgain) {
  questions_.ask(0, "x");
  questions_.ask(1, "y");
  sent();
  for (int i = 0; i < 10; ++i) questions_.repeat();
  EXPECT_TRUE(sent().empty());
  primaries_[0] = b_;
  questions_.repeat();
  EXPECT_EQ(sent(), (std::vector<Sent>{{"b", 1, 0, "x"}}));
}

TEST_F(QuestionsTest, WhatIsNotServedIsAskedAgainOnce) {
  questions_.ask(0, "x");
  sent();
  questions_.not_served(1, a_);
  questions_.not_served(1, a_);  // of an epoch before
  EXPECT_TRUE(questions_.wants_retry());
  questions_.retry();
  EXPECT_EQ(sent().size(), 1U);
  EXPECT_FALSE(questions_.wants_retry());
  questions_.not_served(1, a_);
  questions_.repeat();  // there is another map meanwhile
  EXPECT_EQ(sent().size(), 1U);
  questions_.retry();
  EXPECT_TRUE(sent().empty()) << "it was asked then";
}

TEST_F(QuestionsTest, AnAnswerOfOneThatIsNoLongerAskedChangesNothing) {
  questions_.ask(0, "x");
  primaries_[0] = b_;
  questions_.repeat();
  sent();
  questions_.not_served(1, a_);
  EXPECT_FALSE(questions_.wants_retry());
  EXPECT_NE(questions_.find(1, 0), nullptr) << "if it was served there, that is as good";
}

TEST_F(QuestionsTest, AfterABrokenConnectionWhatWasAskedThereIsAskedAgain) {
  questions_.ask(0, "x");
  questions_.ask(1, "y");
  sent();
  questions_.disconnected(a_);
  questions_.repeat();
  EXPECT_EQ(sent(), (std::vector<Sent>{{"a", 1, 0, "x"}}));
}

TEST_F(QuestionsTest, WhatIsClearedIsNotAskedAgain) {
  questions_.ask(0, "x");
  questions_.not_served(1, a_);
  questions_.clear();
  sent();
  questions_.retry();
  questions_.repeat();
  EXPECT_TRUE(sent().empty());
  questions_.ask(0, "y");
  EXPECT_EQ(sent(), (std::vector<Sent>{{"a", 2, 0, "y"}})) << "under another number";
}

}  // namespace
}  // namespace muster::ps
