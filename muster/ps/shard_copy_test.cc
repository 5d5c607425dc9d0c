#include "muster/ps/shard_copy.h"

#include <deque>

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

// Its contents are all pushes, one after the other.
class Text final : public ShardData {
 public:
  std::string text;
  Status check(std::string_view push) const override {
    if (push == "bad") return Error(ErrorKind::kIo, "bad");
    return {};
  }
  Status apply(std::string_view push) override {
    if (push == "full") return Error(ErrorKind::kMachine, "no memory");
    text += push;
    return {};
  }
  void save(std::string& to) override { to += text; }
  Status load(std::string_view from) override {
    text = from;
    return {};
  }
  void clear() override { text.clear(); }
};

// Three servers and a shard, with messages that are delivered when the test says so.
class ShardCopyTest : public ::testing::Test {
 protected:
  struct Server final : ShardLinks {
    Server(ShardCopyTest& owner, const std::string& id)
        : test(owner), key{id, 1}, copy(0, key, data, *this) {}
    void send(const ServerKey& to, ShardMessage message) override {
      test.under_way_.push_back({key, to, std::move(message)});
    }
    void answer(PushAnswer answer) override { test.answers_.push_back(std::move(answer)); }
    ShardCopyTest& test;
    ServerKey key;
    Text data;
    ShardCopy copy;
  };
  struct Letter {
    ServerKey from;
    ServerKey to;
    ShardMessage message;
  };

  ShardCopyTest() {
    // In the order in which they come for shard 0.
    for (const auto* id : {"x", "y", "z"}) all_.push_back({{id, 1}, true, {}, 0, {}});
    ServerMap map;
    map.servers = all_;
    for (int i = 0; i < 3; ++i) {
      const auto first = *holders_of(0, map, 1).primary;
      servers_.push_back(std::make_unique<Server>(*this, first.id));
      std::erase_if(map.servers, [&](const ServerEntry& entry) { return entry.key == first; });
    }
  }
  Server& at(size_t i) { return *servers_[i]; }
  Server& of(const ServerKey& key) {
    for (auto& server : servers_) {
      if (server->key == key) return *server;
    }
    return at(0);
  }
  ServerMap map_of(const std::vector<std::pair<int, bool>>& servers) {
    ServerMap map;
    map.epoch = epoch_ + 1;
    for (const auto& [i, ready] : servers)
      map.servers.push_back({at(static_cast<size_t>(i)).key, ready, {}, 0, {}});
    return map;
  }
  // All servers enter the next epoch, with these, ready or not.
  void enter(const std::vector<std::pair<int, bool>>& servers) {
    const auto map = map_of(servers);
    epoch_ = map.epoch;
    for (auto& server : servers_) {
      if (map.find(server->key) != nullptr) server->copy.enter(map, 2);
    }
  }
  bool deliver_one() {
    if (under_way_.empty()) return false;
    const Letter letter = std::move(under_way_.front());
    under_way_.pop_front();
    of(letter.to).copy.receive(letter.from, letter.message);
    return true;
  }
  void deliver() {
    while (deliver_one()) {
    }
  }
  void push(size_t server, uint64_t number, const std::string& text, uint64_t client = 5) {
    at(server).copy.push(epoch_, {client, number, Bytes(text)});
  }
  // 0 was a follower of 1 and has a push that was not answered; then it becomes primary, and 1 has
  // asked it for its copy. The client repeats its push.
  void begin_behind() {
    enter({{1, true}, {0, false}});
    deliver();
    if (!at(0).copy.in_step()) {
      at(1).copy.send_copy(at(0).key);
      deliver();
    }
    push(1, 1, "a");
    deliver_one();
    ASSERT_EQ(at(0).data.text, "a");
    under_way_.clear();  // its confirmation is lost
    enter({{1, true}, {0, true}});
    push(0, 1, "a");
    deliver();
  }
  std::vector<PushVerdict> verdicts() {
    std::vector<PushVerdict> found;
    for (const auto& answer : answers_) found.push_back(answer.verdict);
    answers_.clear();
    return found;
  }

  std::vector<ServerEntry> all_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::deque<Letter> under_way_;
  std::vector<PushAnswer> answers_;
  uint64_t epoch_ = 0;
};

using enum PushVerdict;
using Verdicts = std::vector<PushVerdict>;

TEST_F(ShardCopyTest, APushIsAnsweredWhenBothHaveIt) {
  enter({{0, true}, {1, true}});
  deliver();
  push(0, 1, "a");
  EXPECT_TRUE(answers_.empty());
  EXPECT_EQ(at(0).data.text, "") << "nobody may read what could be lost";
  deliver_one();  // the forward
  EXPECT_EQ(at(1).data.text, "a");
  EXPECT_TRUE(answers_.empty());
  deliver();
  EXPECT_EQ(verdicts(), Verdicts{kApplied});
  EXPECT_EQ(at(0).data.text, "a");
  EXPECT_EQ(at(0).copy.chain(), at(1).copy.chain());
}

TEST_F(ShardCopyTest, ARepeatedPushIsAnsweredAndNotAppliedAgain) {
  enter({{0, true}, {1, true}});
  push(0, 1, "a");
  push(0, 1, "a");  // while it is pending
  deliver();
  EXPECT_EQ(verdicts(), Verdicts{kApplied});
  push(0, 1, "a");
  EXPECT_EQ(verdicts(), Verdicts{kApplied});
  EXPECT_EQ(at(0).data.text, "a");
  push(0, 1, "b", 6);  // of another client
  deliver();
  EXPECT_EQ(at(1).data.text, "ab");
}

TEST_F(ShardCopyTest, ThePrimaryKnowsWhoHasEverything) {
  enter({{0, true}});
  push(0, 1, "a");
  enter({{0, true}, {2, true}});
  deliver();
  EXPECT_FALSE(at(0).copy.is_with(at(2).key)) << "it waits for its copy";
  at(0).copy.send_copy(at(2).key);
  EXPECT_FALSE(at(0).copy.is_with(at(2).key)) << "that is under way";
  deliver();
  EXPECT_TRUE(at(0).copy.is_with(at(2).key));
  EXPECT_FALSE(at(0).copy.is_with(at(1).key));
  EXPECT_FALSE(at(2).copy.is_with(at(0).key)) << "it is no primary";
  push(0, 2, "b");
  EXPECT_TRUE(at(0).copy.is_with(at(2).key)) << "nothing more is applied yet";
}

TEST_F(ShardCopyTest, AGapIsRefused) {
  enter({{0, true}});
  push(0, 2, "b");
  ASSERT_EQ(answers_.size(), 1U);
  EXPECT_EQ(answers_[0].number, 1U) << "what it expects";
  EXPECT_EQ(verdicts(), Verdicts{kGap});
}

TEST_F(ShardCopyTest, WhatIsMalformedOrForAnotherEpochIsRefused) {
  enter({{0, true}, {1, true}});
  push(0, 1, "bad");
  push(1, 1, "a");  // not the primary
  at(0).copy.push(7, {5, 1, Bytes(std::string("a"))});
  EXPECT_EQ(verdicts(), (Verdicts{kMalformed, kOtherEpoch, kOtherEpoch}));
}

TEST_F(ShardCopyTest, TheBackupTakesOverWithWhatWasAnsweredAndTheClientsNumbers) {
  enter({{0, true}, {1, true}});
  push(0, 1, "a");
  deliver();
  push(0, 2, "b");
  deliver_one();  // the backup has it, and the primary is lost
  under_way_.clear();
  verdicts();
  enter({{1, true}});
  EXPECT_TRUE(at(1).copy.serves(2));
  push(1, 2, "b");
  EXPECT_EQ(verdicts(), Verdicts{kApplied});
  EXPECT_EQ(at(1).data.text, "ab");
}

TEST_F(ShardCopyTest, AReplacedPrimaryAnswersNothing) {
  enter({{0, true}, {1, true}});
  deliver();
  // The backup is in the next epoch; the primary was suspended and does not know.
  ServerMap map = map_of({{1, true}});
  at(1).copy.enter(map, 2);
  push(0, 1, "a");
  deliver();
  EXPECT_TRUE(answers_.empty());
  EXPECT_EQ(at(0).data.text, "");
  EXPECT_EQ(at(1).data.text, "") << "of an epoch that is over";
}

TEST_F(ShardCopyTest, ANewBackupGetsACopyWhileThePrimaryGoesOn) {
  enter({{0, true}});
  push(0, 1, "a");
  enter({{0, true}, {2, true}});
  deliver();
  push(0, 2, "b");
  EXPECT_EQ(verdicts(), (Verdicts{kApplied, kApplied})) << "it does not wait for the copy";
  EXPECT_FALSE(at(2).copy.in_step());
  ASSERT_EQ(at(0).copy.wanting_copies(), std::vector{at(2).key});
  push(0, 3, "c");
  at(0).copy.send_copy(at(2).key);
  push(0, 4, "d");
  EXPECT_EQ(verdicts(), Verdicts{kApplied}) << "now it waits";
  deliver();
  EXPECT_EQ(verdicts(), Verdicts{kApplied});
  EXPECT_EQ(at(2).data.text, "abcd");
  EXPECT_TRUE(at(2).copy.in_step());
}

TEST_F(ShardCopyTest, AFollowerWithoutACopyDoesNotServeWhenItBecomesPrimary) {
  enter({{0, true}});
  push(0, 1, "a");
  enter({{0, true}, {2, true}});
  enter({{2, true}});
  EXPECT_TRUE(at(2).copy.lost());
  verdicts();
  push(2, 2, "b");
  EXPECT_EQ(verdicts(), Verdicts{kLost});
}

TEST_F(ShardCopyTest, AServerThatJoinsTakesOverWhenItIsReady) {
  // 0 comes first in the order, and joins last.
  enter({{1, true}, {2, true}});
  push(1, 1, "a");
  deliver();
  enter({{1, true}, {2, true}, {0, false}});
  deliver();
  at(1).copy.send_copy(at(0).key);
  deliver();
  EXPECT_TRUE(at(0).copy.in_step());
  push(1, 2, "b");
  deliver();
  EXPECT_EQ(at(0).data.text, "ab");
  enter({{1, true}, {2, true}, {0, true}});
  EXPECT_FALSE(at(0).copy.serves(epoch_)) << "the primary before it may not know yet";
  EXPECT_EQ(at(2).data.text, "") << "it holds the shard no more";
  deliver();
  EXPECT_TRUE(at(0).copy.serves(epoch_));
  verdicts();
  push(0, 3, "c");
  deliver();
  EXPECT_EQ(verdicts(), Verdicts{kApplied});
  EXPECT_EQ(at(1).data.text, "abc");
}

TEST_F(ShardCopyTest, ANewPrimaryAnswersNothingThatOthersMayNotHave) {
  begin_behind();
  EXPECT_TRUE(answers_.empty());
  EXPECT_FALSE(at(0).copy.serves(epoch_));
  at(0).copy.send_copy(at(1).key);
  deliver();
  EXPECT_EQ(verdicts(), Verdicts{kApplied});
  EXPECT_EQ(at(1).data.text, "a");
}

// Many shards may have moved at the same time: the server sends one copy after the other, and
// heartbeats between.
TEST_F(ShardCopyTest, ACopyThatAnswersWaitForIsSentWhenTheServerSaysSo) {
  begin_behind();
  EXPECT_TRUE(at(1).copy.complete());
  EXPECT_FALSE(at(1).copy.in_step()) << "nothing was sent";
  EXPECT_EQ(at(0).copy.wanting_copies(), std::vector{at(1).key});
  EXPECT_EQ(at(0).copy.awaited_copies(), std::vector{at(1).key});
  push(0, 2, "b");
  deliver();
  EXPECT_TRUE(answers_.empty()) << "the other one is complete, and may be primary next";
  EXPECT_EQ(at(0).data.text, "a");
  at(0).copy.send_copy(at(1).key);
  EXPECT_TRUE(at(0).copy.wanting_copies().empty());
  deliver();
  EXPECT_EQ(verdicts(), (Verdicts{kApplied, kApplied}));
  EXPECT_EQ(at(0).data.text, "ab");
  EXPECT_EQ(at(1).data.text, "ab");
}

TEST_F(ShardCopyTest, AnswersGoOnWaitingForACopyThroughAReconnectAndAnEpoch) {
  begin_behind();
  at(0).copy.reconnected(at(1).key);
  EXPECT_TRUE(at(0).copy.wanting_copies().empty()) << "it asks first";
  push(0, 2, "b");
  EXPECT_TRUE(answers_.empty());
  at(1).copy.reconnected(at(0).key);
  deliver();
  ASSERT_EQ(at(0).copy.awaited_copies().size(), 1U);
  enter({{1, true}, {0, true}, {2, false}});
  EXPECT_TRUE(at(0).copy.awaited_copies().empty()) << "it asks again";
  EXPECT_TRUE(answers_.empty());
  deliver();
  ASSERT_EQ(at(0).copy.awaited_copies(), std::vector{at(1).key});
  EXPECT_TRUE(answers_.empty());
  at(0).copy.send_copy(at(1).key);
  deliver();
  EXPECT_EQ(at(1).data.text, "ab");
  EXPECT_TRUE(at(0).copy.serves(epoch_));
}

TEST_F(ShardCopyTest, OneThatIsNotCompleteIsNotWaitedFor) {
  begin_behind();
  at(0).copy.receive(at(1).key, {0, epoch_, Ask{9, 0, 0, false}});
  EXPECT_EQ(at(0).copy.wanting_copies(), std::vector{at(1).key});
  EXPECT_TRUE(at(0).copy.awaited_copies().empty());
  EXPECT_EQ(verdicts(), Verdicts{kApplied}) << "nothing that was answered is there alone";
}

TEST_F(ShardCopyTest, WithOneCopyTheOldPrimaryIsWaitedFor) {
  ServerMap first = map_of({{1, true}});
  at(1).copy.enter(first, 1);
  ServerMap second = map_of({{1, true}, {0, false}});
  second.epoch = 2;
  at(1).copy.enter(second, 1);
  at(0).copy.enter(second, 1);
  deliver();
  ServerMap third = map_of({{1, true}, {0, true}});
  third.epoch = 3;
  at(0).copy.enter(third, 1);
  deliver();
  EXPECT_FALSE(at(0).copy.serves(3));
  at(1).copy.enter(third, 1);
  deliver();
  EXPECT_TRUE(at(0).copy.serves(3));
}

TEST_F(ShardCopyTest, AfterABrokenConnectionNothingIsMissing) {
  enter({{0, true}, {1, true}});
  push(0, 1, "a");
  deliver();
  push(0, 2, "b");
  under_way_.clear();
  at(0).copy.reconnected(at(1).key);
  at(1).copy.reconnected(at(0).key);
  deliver();
  EXPECT_EQ(verdicts(), (Verdicts{kApplied, kApplied}));
  EXPECT_EQ(at(1).data.text, "ab");
}

TEST_F(ShardCopyTest, MessagesOfALaterEpochWait) {
  enter({{0, true}, {1, true}});
  ServerMap map = map_of({{0, true}, {1, true}, {2, true}});
  at(0).copy.enter(map, 2);
  at(0).copy.push(2, {5, 1, Bytes(std::string("a"))});
  deliver();
  EXPECT_EQ(at(1).data.text, "");
  at(1).copy.enter(map, 2);
  deliver();
  EXPECT_EQ(at(1).data.text, "a");
  EXPECT_EQ(verdicts(), Verdicts{kApplied});
}

TEST_F(ShardCopyTest, ACopyThatCannotHoldAPushGivesUp) {
  enter({{0, true}});
  push(0, 1, "full");
  EXPECT_TRUE(answers_.empty());
  ASSERT_TRUE(at(0).copy.failure());
  EXPECT_FALSE(at(0).copy.serves(1));
  EXPECT_FALSE(at(0).copy.lost()) << "others may have it";
  push(0, 2, "a");
  EXPECT_TRUE(answers_.empty()) << "whoever is primary next answers";
}

TEST_F(ShardCopyTest, WhatAnswersAnEarlierQuestionIsNotTaken) {
  enter({{0, true}});
  push(0, 1, "a");
  enter({{0, true}, {2, true}});
  deliver();
  // The copy is sent before the second question comes, which says that it has no copy.
  under_way_.clear();
  at(2).copy.reconnected(at(0).key);
  at(0).copy.send_copy(at(2).key);
  deliver();
  EXPECT_FALSE(at(2).copy.in_step()) << "its primary does not count on it";
  push(0, 2, "b");
  ASSERT_EQ(at(0).copy.wanting_copies().size(), 1U);
  at(0).copy.send_copy(at(2).key);
  deliver();
  EXPECT_TRUE(at(2).copy.in_step());
  EXPECT_EQ(at(2).data.text, "ab");
}

TEST_F(ShardCopyTest, AReconnectWhileACopyIsWantedBeginsAgain) {
  enter({{0, true}});
  push(0, 1, "a");
  enter({{0, true}, {2, true}});
  deliver();
  at(0).copy.reconnected(at(2).key);
  EXPECT_TRUE(at(0).copy.wanting_copies().empty()) << "it asks first";
  at(2).copy.reconnected(at(0).key);
  deliver();
  EXPECT_EQ(at(0).copy.wanting_copies().size(), 1U);
}

}  // namespace
}  // namespace muster::ps
