#include "muster/ps/server_core.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

class Text final : public ShardData {
 public:
  Status check(std::string_view /*push*/) const override { return {}; }
  Status apply(std::string_view push) override {
    text_ += push;
    return {};
  }
  void save(std::string& to) override { to += text_; }
  Status load(std::string_view from) override {
    text_ = from;
    return {};
  }
  void clear() override { text_.clear(); }

 private:
  std::string text_;
};

// The primary of four shards, and two servers that join and want copies of them.
class ServerCoreTest : public ::testing::Test, public ShardLinks {
 protected:
  static constexpr ShardNumber kFew = 4;

  void send(const ServerKey& to, ShardMessage message) override {
    if (std::holds_alternative<Copy>(message.what)) copies_.emplace_back(to.id, message.shard);
  }
  void answer(PushAnswer answer) override { answered_ += answer.verdict == PushVerdict::kApplied; }

  void SetUp() override {
    ServerMap map;
    map.epoch = 1;
    map.servers.push_back({core_.self(), true, {}, 0, {}});
    core_.enter({&map, 1});
    for (ShardNumber shard = 0; shard < kFew; ++shard) {
      core_.push(shard, 1, {5, 1, Bytes(std::string("a"))});
    }
    ASSERT_EQ(answered_, kFew);
    map.epoch = 2;
    for (const auto& key : {b_, c_}) map.servers.push_back({key, false, {}, 0, {}});
    core_.enter({&map, 1});
    for (ShardNumber shard = 0; shard < kFew; ++shard) {
      for (const auto& key : {b_, c_}) {
        core_.receive(key, {shard, 2, Ask{1, 0, 0, false}});
      }
    }
  }
  using Copies = std::vector<std::pair<std::string, ShardNumber>>;
  Copies copies() { return std::exchange(copies_, {}); }

  const ServerKey b_{"b", 2};
  const ServerKey c_{"c", 3};
  Copies copies_;
  ShardNumber answered_ = 0;
  ServerCore core_{{"a", 1}, kFew, 2, [](ShardNumber) { return std::make_unique<Text>(); }, *this};
};

TEST_F(ServerCoreTest, CopiesAreSentAFewAtATime) {
  EXPECT_EQ(core_.send_copies(1), 1);
  EXPECT_EQ(core_.send_copies(2), 2);
  EXPECT_EQ(copies().size(), 3U);
  EXPECT_EQ(core_.send_copies(100), 5);
  EXPECT_EQ(core_.send_copies(100), 0);
}

TEST_F(ServerCoreTest, AServerThatIsSlowDoesNotHoldUpTheCopiesOfOthers) {
  const auto but_b = [&](const ServerKey& to) { return to != b_; };
  for (ShardNumber shard = 0; shard < kFew; ++shard) EXPECT_EQ(core_.send_copies(1, but_b), 1);
  EXPECT_EQ(core_.send_copies(1, but_b), 0);
  EXPECT_EQ(copies(), (Copies{{"c", 0}, {"c", 1}, {"c", 2}, {"c", 3}}));
  EXPECT_EQ(core_.send_copies(100), 4) << "it gets them when it takes them";
}

// When shards have moved, one that has them already may have to be sent all of them, and pushes
// wait for it. The server still does other things between two copies.
TEST_F(ServerCoreTest, CopiesThatAnswersWaitForAreSentOneByOneAndFirst) {
  constexpr ShardNumber kMany = 64;
  ServerCore moved({"a", 1}, kMany, 2, [](ShardNumber) { return std::make_unique<Text>(); }, *this);
  ServerMap map;
  map.epoch = 1;
  for (const auto& key : {moved.self(), b_, c_}) map.servers.push_back({key, true, {}, 0, {}});
  moved.enter({&map, 1});
  for (ShardNumber shard = 0; shard < kMany; ++shard) {
    moved.receive(b_, {shard, 1, Ask{1, 0, 7, false}});
    moved.receive(c_, {shard, 1, Ask{1, 0, 7, true}});
  }
  EXPECT_TRUE(copies().empty());
  std::string order;
  while (moved.send_copies(1) == 1) {
    const auto sent = copies();
    ASSERT_EQ(sent.size(), 1U);
    order += sent[0].first;
  }
  const auto awaited = std::ranges::count(order, 'c');
  EXPECT_GT(awaited, 5);
  EXPECT_LT(awaited, std::ssize(order) - 5);
  EXPECT_EQ(order.substr(0, static_cast<size_t>(awaited)),
            std::string(static_cast<size_t>(awaited), 'c'));
}

}  // namespace
}  // namespace muster::ps
