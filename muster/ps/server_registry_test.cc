#include "muster/ps/server_registry.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

using namespace std::chrono_literals;
using Standing = HeartbeatReply::Standing;

class ServerRegistryTest : public ::testing::Test {
 protected:
  ServerRegistryTest() { registry_.emplace(make_options()); }
  static RegistryOptions make_options() {
    RegistryOptions options;
    options.first = 2;
    return options;
  }

  // `whole`: it has all that it holds, and every push that was answered.
  Heartbeat heartbeat(const ServerKey& key, uint64_t entered, bool whole = false) {
    Heartbeat made;
    made.key = key;
    made.host = hosts_[key];
    made.entered = entered;
    made.has_all = made.complete = whole;
    return made;
  }
  HeartbeatReply beat(const ServerKey& key, uint64_t entered, bool whole = false) {
    return registry_->heard(heartbeat(key, entered, whole), now_);
  }
  HeartbeatReply beat_from(const ServerKey& key, const std::string& host, uint64_t entered = 0,
                           int64_t process = 1) {
    hosts_[key] = host;
    auto made = heartbeat(key, entered);
    made.process = process;
    return registry_->heard(made, now_);
  }
  struct Cut {
    ServerKey from;
    std::vector<ServerKey> peers;
  };
  // All but those in `silent_` beat for so long, and some cannot reach those that are named.
  void beat_for(Duration time, const std::vector<Cut>& cuts) {
    const Moment until = now_ + time;
    for (Duration lasted{0}; now_ < until; lasted += 100ms) {
      now_ += 100ms;
      const auto servers = registry_->maps().newest().servers;
      for (const auto& server : servers) {
        if (silent_.contains(server.key)) continue;
        auto made = heartbeat(server.key, registry_->maps().newest().epoch, true);
        made.has_all = !lacking_.contains(server.key);
        made.complete = !incomplete_.contains(server.key);
        for (const auto& cut : cuts) {
          if (cut.from != server.key) continue;
          for (const auto& peer : cut.peers) made.unreachable.push_back({peer, lasted});
        }
        registry_->heard(made, now_);
      }
      registry_->expire(now_);
    }
  }
  // Both beat, and have not reached each other for long.
  void beat_apart(const ServerKey& one, const ServerKey& other, uint64_t entered) {
    for (const auto& [key, peer] : {std::pair(one, other), std::pair(other, one)}) {
      auto made = heartbeat(key, entered, true);
      made.unreachable = {{peer, 10s}};
      registry_->heard(made, now_);
    }
  }
  bool is_there(const ServerKey& key) const {
    return registry_->maps().newest().find(key) != nullptr;
  }
  // All who are in the newest map have entered it, and have what they hold.
  void settle() {
    const auto servers = registry_->maps().newest().servers;
    for (const auto& server : servers) beat(server.key, registry_->maps().newest().epoch, true);
  }

  const ServerKey a_{"a", 1};
  const ServerKey b_{"b", 2};
  const ServerKey c_{"c", 3};
  std::optional<ServerRegistry> registry_;
  std::map<ServerKey, std::string> hosts_;  // where they said that they are
  Moment now_{1000s};
  std::set<ServerKey> lacking_;     // do not have all that they hold
  std::set<ServerKey> incomplete_;  // lack pushes that were answered
  std::set<ServerKey> silent_;
};

TEST_F(ServerRegistryTest, BeginsWhenEnoughAreThere) {
  const auto waiting = beat(a_, 0);
  EXPECT_EQ(waiting.standing, Standing::kWaiting);
  EXPECT_GT(waiting.lease, Duration{0}) << "so that it beats often enough";
  const auto reply = beat(b_, 0);
  ASSERT_EQ(reply.standing, Standing::kMember);
  ASSERT_EQ(reply.maps.size(), 1U);
  EXPECT_EQ(reply.maps[0].epoch, 1U);
  EXPECT_TRUE(reply.maps[0].servers[0].ready && reply.maps[0].servers[1].ready);
  EXPECT_GT(reply.lease, Duration{0});
  EXPECT_EQ(beat(a_, 0).maps.size(), 1U);
  EXPECT_TRUE(beat(a_, 1).maps.empty());
}

TEST_F(ServerRegistryTest, OneThatJoinsIsReadyWhenItHasAllAndAllHaveEntered) {
  beat(a_, 0);
  beat(b_, 0);
  settle();
  const auto joined = beat(c_, 0);
  ASSERT_EQ(joined.maps.size(), 1U);  // not those of before its time
  EXPECT_EQ(joined.maps[0].epoch, 2U);
  EXPECT_FALSE(joined.maps[0].find(c_)->ready);
  EXPECT_TRUE(beat(c_, 2, true).maps.empty()) << "a and b have not entered epoch 2";
  beat(a_, 2);
  beat(b_, 2);
  EXPECT_TRUE(beat(c_, 2, false).maps.empty()) << "it does not have all";
  const auto ready = beat(c_, 2, true);
  ASSERT_EQ(ready.maps.size(), 1U);
  EXPECT_TRUE(ready.maps[0].find(c_)->ready);
}

TEST_F(ServerRegistryTest, OneInAnEpochBecomesReady) {
  beat(a_, 0);
  beat(b_, 0);
  settle();
  const ServerKey d{"d", 4};
  beat(c_, 0);
  beat(d, 0);
  settle();
  const auto& newest = registry_->maps().newest();
  EXPECT_EQ(newest.epoch, 4U);
  EXPECT_NE(newest.find(c_)->ready, newest.find(d)->ready);
  settle();
  settle();
  EXPECT_TRUE(registry_->maps().newest().find(c_)->ready);
  EXPECT_TRUE(registry_->maps().newest().find(d)->ready);
}

TEST_F(ServerRegistryTest, WhoIsSilentIsRemovedForEver) {
  beat(a_, 0);
  beat(b_, 0);
  for (int i = 0; i < 3; ++i) {
    now_ += 100ms;
    beat(a_, 1);
    EXPECT_TRUE(registry_->expire(now_).empty());
  }
  now_ += 60ms;
  EXPECT_EQ(registry_->expire(now_), std::vector{b_});
  EXPECT_EQ(registry_->maps().newest().epoch, 2U);
  EXPECT_EQ(beat(b_, 1).standing, Standing::kRemoved);
  const ServerKey again{"b", 20};
  EXPECT_EQ(beat(again, 0).standing, Standing::kMember);
}

TEST_F(ServerRegistryTest, IfAllAreSilentNobodyIsRemoved) {
  beat(a_, 0);
  beat(b_, 0);
  for (int i = 0; i < 100; ++i) {
    now_ += 100ms;
    EXPECT_TRUE(registry_->expire(now_).empty());
  }
  EXPECT_EQ(beat(a_, 1).standing, Standing::kMember);
}

// As after `kill -9` of all, by hand or of their hosts.
TEST_F(ServerRegistryTest, IfAllAreSilentThoseGoInWhosePlaceOthersWereStarted) {
  const ServerKey a_again{"a", 10};
  const ServerKey b_again{"b", 20};
  beat_from(a_, "x", 0, 5);
  beat_from(b_, "y", 0, 6);
  settle();
  registry_->expire(now_);
  now_ += 100ms;
  EXPECT_EQ(beat_from(a_again, "x", 0, 7).standing, Standing::kWaiting);
  EXPECT_TRUE(registry_->expire(now_).empty()) << "the lease of a is not over";
  for (int i = 0; i < 3; ++i) {
    now_ += 100ms;
    beat_from(a_again, "x", 0, 7);
    const auto removed = registry_->expire(now_);
    EXPECT_EQ(removed.size(), i < 2 ? 0U : 1U) << i;
  }
  EXPECT_FALSE(is_there(a_));
  EXPECT_EQ(
      registry_->take_events(),
      std::vector<std::string>{"a was removed: another process has been started in its place"});
  EXPECT_TRUE(is_there(b_)) << "it may only be cut off";
  EXPECT_EQ(beat_from(a_again, "x", 0, 7).standing, Standing::kMember);
  EXPECT_FALSE(registry_->maps().newest().find(a_again)->ready) << "b has the shards";
  beat_from(b_again, "y", 0, 8);
  EXPECT_EQ(registry_->expire(now_), std::vector{b_});
  const ServerMap& map = registry_->maps().newest();
  ASSERT_NE(map.find(a_again), nullptr);
  EXPECT_TRUE(map.find(a_again)->ready) << "nobody has the shards, and it says so";
  EXPECT_EQ(map.away, (std::vector<ServerPlace>{{"b", "y"}}));
}

TEST_F(ServerRegistryTest, IfAllAreSilentOneOnAnotherHostProvesNothing) {
  beat_from(a_, "x");
  beat_from(b_, "y");
  settle();
  for (int i = 0; i < 100; ++i) {
    now_ += 100ms;
    EXPECT_EQ(beat_from({"b", 20}, "z").standing, Standing::kWaiting);
    EXPECT_TRUE(registry_->expire(now_).empty());
  }
}

TEST_F(ServerRegistryTest, ASecondServerWithTheSameIdDoesNotRemoveTheFirstOne) {
  RegistryOptions options = make_options();
  options.first = 1;
  registry_.emplace(options);
  beat_from(a_, "x", 0, 5);
  for (int i = 0; i < 100; ++i) {
    now_ += 100ms;
    EXPECT_EQ(beat_from({"a", 20}, "x", 0, 6).standing, Standing::kWaiting);
    EXPECT_EQ(beat_from(a_, "x", 1, 5).standing, Standing::kMember);
    EXPECT_TRUE(registry_->expire(now_).empty());
  }
}

TEST_F(ServerRegistryTest, IfNobodyIsReadyWhoJoinsIsReadyAtOnce) {
  beat(a_, 0);
  beat(b_, 0);
  beat(c_, 0);
  registry_->ended(a_);
  EXPECT_FALSE(registry_->maps().newest().find(c_)->ready) << "b has the shards";
  registry_->ended(b_);
  EXPECT_TRUE(registry_->maps().newest().find(c_)->ready);
  registry_->ended(c_);
  EXPECT_TRUE(registry_->maps().newest().servers.empty());
  const ServerKey a_again{"a", 10};
  EXPECT_EQ(beat(a_again, 0).standing, Standing::kMember);
  EXPECT_TRUE(registry_->maps().newest().find(a_again)->ready);
  beat({"b", 20}, 0);
  EXPECT_FALSE(registry_->maps().newest().find({"b", 20})->ready);
}

TEST_F(ServerRegistryTest, ACoordinatorThatWasAwayBlamesNobody) {
  beat(a_, 0);
  beat(b_, 0);
  registry_->expire(now_);
  now_ += 10s;
  beat(a_, 1);
  EXPECT_TRUE(registry_->expire(now_).empty());
  for (int i = 0; i < 4; ++i) {
    now_ += 100ms;
    beat(a_, 1);
    const auto removed = registry_->expire(now_);
    EXPECT_EQ(removed.empty(), i < 3) << i;
  }
}

// It has rows, and they are not those of this registry's epochs.
TEST_F(ServerRegistryTest, OneOfAnotherRegistryMustStartAgain) {
  const auto expect_refused = [&](uint64_t entered) {
    const auto reply = beat(b_, entered, true);
    EXPECT_EQ(reply.standing, Standing::kRemoved) << entered;
    EXPECT_NE(reply.reason.find("of another registry"), std::string::npos);
    EXPECT_FALSE(is_there(b_));
    for (const auto& server : registry_->status(now_).servers) EXPECT_NE(server.key, b_);
  };
  beat(a_, 0);
  expect_refused(7);
  EXPECT_EQ(registry_->maps().newest().epoch, 0U) << "it does not count for the beginning";
  beat(c_, 0);
  settle();
  for (const uint64_t entered : {1, 2, 7}) expect_refused(entered);
  EXPECT_EQ(registry_->maps().newest().epoch, 1U);
  EXPECT_EQ(beat({"b", 20}, 0).standing, Standing::kMember) << "started again";
}

TEST_F(ServerRegistryTest, APlaceIsTakenUntilTheFirstOneIsGone) {
  beat(a_, 0);
  beat(b_, 0);
  const ServerKey again{"b", 20};
  EXPECT_EQ(beat(again, 0).standing, Standing::kWaiting);
  registry_->ended(b_);
  EXPECT_EQ(beat(again, 0).standing, Standing::kMember);
  EXPECT_EQ(beat(b_, 1).standing, Standing::kRemoved);
}

TEST_F(ServerRegistryTest, AnAddressIsTakenUntilTheFirstOneIsGone) {
  const auto beat_at = [&](const ServerKey& key, const std::string& address) {
    auto made = heartbeat(key, 0);
    made.address = address;
    return registry_->heard(made, now_).standing;
  };
  EXPECT_EQ(beat_at(a_, "x:1"), Standing::kWaiting);
  EXPECT_EQ(beat_at(b_, "x:2"), Standing::kMember);
  EXPECT_EQ(beat_at(c_, "x:2"), Standing::kWaiting) << "b has ended, and it has b's port";
  EXPECT_EQ(beat_at({"d", 4}, "x:3"), Standing::kMember);
  registry_->ended(b_);
  EXPECT_EQ(beat_at(c_, "x:2"), Standing::kMember);
}

TEST_F(ServerRegistryTest, OfTwoAtOneAddressTheLaterOneBegins) {
  const auto beat_at = [&](const ServerKey& key, const std::string& address) {
    auto made = heartbeat(key, 0);
    made.address = address;
    now_ += 1ms;
    return registry_->heard(made, now_).standing;
  };
  EXPECT_EQ(beat_at(a_, "x:1"), Standing::kWaiting);
  EXPECT_EQ(beat_at(b_, "x:1"), Standing::kWaiting) << "a has ended, and it has a's port";
  EXPECT_EQ(beat_at(c_, "x:2"), Standing::kMember);
  EXPECT_EQ(registry_->maps().newest().servers.size(), 2U);
  EXPECT_EQ(registry_->maps().newest().find(a_), nullptr);
}

TEST_F(ServerRegistryTest, WhoWaitedAndWentIsForgotten) {
  beat(a_, 0);
  now_ += 10s;
  registry_->expire(now_);
  EXPECT_EQ(beat(b_, 0).standing, Standing::kWaiting);
  EXPECT_EQ(beat({"a", 10}, 0).standing, Standing::kMember);
  EXPECT_EQ(registry_->maps().newest().servers.size(), 2U);
}

TEST_F(ServerRegistryTest, APlaceKeepsItsHost) {
  beat_from(a_, "x");
  beat_from(b_, "y");
  settle();
  EXPECT_EQ(registry_->maps().newest().find(a_)->host, "x");
  registry_->ended(a_);
  EXPECT_EQ(registry_->maps().newest().away, (std::vector<ServerPlace>{{"a", "x"}}));
  const ServerKey again{"a", 10};
  beat_from(again, "z");
  EXPECT_EQ(registry_->maps().newest().find(again)->host, "x") << "its place is there";
  EXPECT_EQ(registry_->maps().newest().away.size(), 1U) << "it is joining";
  settle();
  settle();
  EXPECT_TRUE(registry_->maps().newest().find(again)->ready);
  EXPECT_TRUE(registry_->maps().newest().away.empty());
}

TEST_F(ServerRegistryTest, OneThatNeverWasReadyLeavesNoPlace) {
  beat(a_, 0);
  beat(b_, 0);
  beat(c_, 0);
  registry_->ended(c_);
  EXPECT_TRUE(registry_->maps().newest().away.empty());
}

TEST_F(ServerRegistryTest, OfTwoThatCannotReachEachOtherTheLaterOneGoes) {
  beat(a_, 0);
  beat(b_, 0);
  settle();
  // One of them says so; the other has not noticed.
  beat_for(1500ms, {{a_, {b_}}});
  EXPECT_EQ(beat(b_, 1, true).standing, Standing::kMember) << "not before it has lasted";
  now_ += 100ms;
  beat(b_, 1, true);
  auto late = heartbeat(a_, 1, true);
  late.unreachable = {{b_, 1500ms}};
  registry_->heard(late, now_);
  registry_->expire(now_);
  const auto told = beat(b_, 1, true);
  EXPECT_EQ(told.standing, Standing::kRemoved);
  EXPECT_NE(told.reason.find("it and a could not reach each other"), std::string::npos);
  EXPECT_TRUE(is_there(b_)) << "it may still let clients read";
  beat_for(400ms, {});
  EXPECT_FALSE(is_there(b_));
  EXPECT_TRUE(is_there(a_));
}

TEST_F(ServerRegistryTest, TheOneThatTheMostOthersDoNotReachGoes) {
  beat(a_, 0);
  beat(b_, 0);
  beat(c_, 0);
  settle();
  settle();
  settle();
  ASSERT_TRUE(registry_->maps().newest().find(c_)->ready);
  beat_for(2500ms, {{a_, {b_, c_}}, {c_, {a_}}});
  EXPECT_FALSE(is_there(a_));
  EXPECT_TRUE(is_there(b_) && is_there(c_));
}

TEST_F(ServerRegistryTest, NobodyGoesWithWhomAShardWouldBeLost) {
  beat(a_, 0);
  beat(b_, 0);
  settle();
  incomplete_ = {a_};
  beat_for(5s, {{a_, {b_}}, {b_, {a_}}});
  EXPECT_FALSE(is_there(a_)) << "b has what a lacks";
  EXPECT_TRUE(is_there(b_));
}

TEST_F(ServerRegistryTest, IfBothLackSomethingBothStay) {
  beat(a_, 0);
  beat(b_, 0);
  settle();
  incomplete_ = {a_, b_};
  beat_for(5s, {{a_, {b_}}, {b_, {a_}}});
  EXPECT_TRUE(is_there(a_) && is_there(b_));
  incomplete_ = {};
  beat_for(3s, {{a_, {b_}}, {b_, {a_}}});
  EXPECT_FALSE(is_there(b_));
}

TEST_F(ServerRegistryTest, OneThatJoinsGoesBeforeOneThatIsReadyAndThenWaits) {
  const ServerKey first{"0", 9};  // before all others
  beat(a_, 0);
  beat(b_, 0);
  settle();
  lacking_ = {first};
  beat(first, 0);
  beat_for(2500ms, {{first, {a_}}, {a_, {first}}});
  EXPECT_FALSE(is_there(first));
  EXPECT_TRUE(is_there(a_));
  const ServerKey again{"0", 10};
  EXPECT_EQ(beat(again, 0).standing, Standing::kWaiting) << "in quarantine";
  beat_for(10s, {});
  EXPECT_EQ(beat(again, 0).standing, Standing::kMember);
  // The second time it waits for longer.
  lacking_ = {again};
  beat_for(2500ms, {{a_, {again}}});
  EXPECT_FALSE(is_there(again));
  beat_for(10s, {});
  EXPECT_EQ(beat({"0", 11}, 0).standing, Standing::kWaiting);
}

TEST_F(ServerRegistryTest, WithOneCopyNobodyWhoIsReadyGoes) {
  RegistryOptions options = make_options();
  options.copies = 1;
  registry_.emplace(options);
  beat(a_, 0);
  beat(b_, 0);
  settle();
  beat_for(5s, {{a_, {b_}}, {b_, {a_}}});
  EXPECT_TRUE(is_there(a_) && is_there(b_));
}

TEST_F(ServerRegistryTest, OneThatIsGoneIsNotSaidToBeOutOfReach) {
  beat(a_, 0);
  beat(b_, 0);
  settle();
  registry_->expire(now_);
  // The coordinator is suspended, b ends, and a is heard when the coordinator continues.
  now_ += 20s;
  for (int i = 0; i < 10; ++i) {
    now_ += 50ms;
    auto made = heartbeat(b_, 1, true);
    made.unreachable = {{a_, 20s}};
    registry_->heard(made, now_);
    registry_->expire(now_);
  }
  EXPECT_FALSE(is_there(a_));
  EXPECT_EQ(beat(b_, registry_->maps().newest().epoch).standing, Standing::kMember);
}

TEST_F(ServerRegistryTest, StatusSaysWhoIsThere) {
  EXPECT_EQ(registry_->status(now_).first, 2U);
  beat(a_, 0);
  EXPECT_EQ(registry_->status(now_).epoch, 0U);
  EXPECT_EQ(registry_->status(now_).servers.at(0).standing, ServerStatus::Standing::kWaiting);
  beat(b_, 0);
  settle();
  auto made = heartbeat(c_, 0);
  made.host = "h";
  made.rows = 70;
  made.unreachable = {{a_, 2s}};
  registry_->heard(made, now_);
  now_ += 10ms;
  const auto status = registry_->status(now_);
  EXPECT_EQ(status.epoch, 2U);
  ASSERT_EQ(status.servers.size(), 3U);
  EXPECT_EQ(status.servers[0].standing, ServerStatus::Standing::kReady);
  EXPECT_EQ(status.servers[2].standing, ServerStatus::Standing::kJoining);
  EXPECT_EQ(status.servers[2].rows, 70U);
  EXPECT_EQ(status.servers[2].heard_ago, Duration{10ms});
  EXPECT_EQ(status.servers[2].unreachable, std::vector<std::string>{"a"});
  registry_->ended(c_);
  EXPECT_EQ(registry_->status(now_).servers.size(), 2U);
}

TEST_F(ServerRegistryTest, OneThatMissedTooMuchMustStartAgain) {
  beat(a_, 0);
  beat(b_, 0);
  for (uint64_t i = 0; i < MapHistory::kKept + 1; ++i) {
    const ServerKey key{"c", 100 + i};
    beat(key, 0);
    registry_->ended(key);
  }
  EXPECT_EQ(beat(a_, 1).standing, Standing::kRemoved);
  EXPECT_EQ(beat(b_, registry_->maps().newest().epoch - 1).standing, Standing::kMember);
}

// The rules on whether no shard is lost with a server.

TEST_F(ServerRegistryTest, WhatCountsIsWhetherTheOthersHaveEveryPushThatWasAnswered) {
  beat(a_, 0);
  beat(b_, 0);
  settle();
  lacking_ = {a_};  // a copy that it is going to hold is under way, which changes nothing
  beat_for(2500ms, {{a_, {b_}}});
  EXPECT_FALSE(is_there(b_));
  EXPECT_TRUE(is_there(a_));
}

TEST_F(ServerRegistryTest, NobodyGoesBeforeTheOthersWereHeardJustNow) {
  beat(a_, 0);
  beat(b_, 0);
  settle();
  beat_for(1400ms, {{a_, {b_}}});
  now_ += 200ms;
  registry_->expire(now_);
  EXPECT_TRUE(registry_->take_events().empty()) << "either of them may be gone";
  beat_apart(a_, b_, 1);
  registry_->expire(now_);
  EXPECT_EQ(registry_->take_events().size(), 1U);
  EXPECT_EQ(beat(b_, 1).standing, Standing::kRemoved);
}

TEST_F(ServerRegistryTest, NobodyGoesWhileAnotherHasNotEnteredTheNewestEpoch) {
  beat(a_, 0);
  beat(b_, 0);
  settle();
  beat_for(1400ms, {{a_, {b_}}});
  beat(c_, 0);  // joins: epoch 2
  for (int i = 0; i < 10; ++i) {
    now_ += 100ms;
    beat_apart(a_, b_, 1);
    beat(c_, 2);
    registry_->expire(now_);
  }
  EXPECT_TRUE(registry_->take_events().empty());
  beat_apart(a_, b_, 2);
  registry_->expire(now_);
  EXPECT_EQ(registry_->take_events().size(), 1U);
}

// What people are told.

TEST_F(ServerRegistryTest, EventsSayWhoWasRemovedAndWhy) {
  beat(a_, 0);
  beat(b_, 0);
  beat(c_, 0);
  for (int i = 0; i < 4; ++i) settle();
  EXPECT_TRUE(registry_->take_events().empty()) << "who joins is in the map";
  silent_ = {c_};
  beat_for(400ms, {});
  EXPECT_EQ(registry_->take_events(), std::vector<std::string>{"c was removed: its lease expired"});
  EXPECT_TRUE(registry_->take_events().empty()) << "each of them once";
  const std::string reason =
      "it and a could not reach each other: check --host, and firewalls between their hosts";
  settle();
  beat_for(1600ms, {{a_, {b_}}});
  EXPECT_EQ(registry_->take_events(),
            std::vector<std::string>{"b is going to be removed: " + reason});
  EXPECT_EQ(beat(b_, registry_->maps().newest().epoch).reason, reason);
  beat_for(400ms, {});
  EXPECT_EQ(registry_->take_events(), std::vector<std::string>{"b was removed: " + reason});
}

TEST_F(ServerRegistryTest, StatusSaysWhyOneInQuarantineWaits) {
  beat(a_, 0);
  beat(b_, 0);
  settle();
  beat_for(2500ms, {{a_, {b_}}});
  ASSERT_FALSE(is_there(b_));
  const ServerKey again{"b", 20};
  EXPECT_EQ(beat(again, 0).standing, Standing::kWaiting);
  auto status = registry_->status(now_);
  ASSERT_EQ(status.servers.size(), 2U) << "the one that was removed is not shown";
  EXPECT_EQ(status.servers[0].reason, "");
  EXPECT_EQ(status.servers[1].key, again);
  EXPECT_EQ(status.servers[1].standing, ServerStatus::Standing::kWaiting);
  EXPECT_EQ(status.servers[1].reason.find("it and a could not reach each other"), 0U);
  beat_for(10s, {});
  beat(again, 0);
  status = registry_->status(now_);
  ASSERT_EQ(status.servers.size(), 2U);
  EXPECT_EQ(status.servers[1].standing, ServerStatus::Standing::kJoining);
  EXPECT_EQ(status.servers[1].reason, "");
}

}  // namespace
}  // namespace muster::ps
