#include "muster/ps/server_registry.h"

#include <optional>
#include <set>

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

using namespace std::chrono_literals;
using Standing = HeartbeatReply::Standing;

class RegistryTest : public ::testing::Test {
 protected:
  RegistryTest() { registry_.emplace(make_options()); }
  static RegistryOptions make_options() {
    RegistryOptions options;
    options.first = 2;
    return options;
  }

  HeartbeatReply beat(const ServerKey& key, uint64_t entered, bool has_all = false) {
    return registry_->heard({key, entered, has_all, {}, 0, {}, 0, {}}, now_);
  }
  // All beat for so long, and a and b cannot reach those that are named.
  struct Cut {
    ServerKey from;
    std::vector<ServerKey> peers;
  };
  void beat_for(Duration time, const std::vector<Cut>& cuts) {
    const Moment until = now_ + time;
    for (Duration lasted{0}; now_ < until; lasted += 100ms) {
      now_ += 100ms;
      const auto servers = registry_->maps().newest().servers;
      for (const auto& server : servers) {
        Heartbeat heartbeat{server.key,
                            registry_->maps().newest().epoch,
                            !lacking_.contains(server.key),
                            {},
                            0,
                            {},
                            0,
                            {}};
        for (const auto& cut : cuts) {
          if (cut.from != server.key) continue;
          for (const auto& peer : cut.peers) heartbeat.unreachable.push_back({peer, lasted});
        }
        registry_->heard(heartbeat, now_);
      }
      registry_->expire(now_);
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
  Moment now_{1000s};
  std::set<ServerKey> lacking_;  // do not have all that they hold
};

TEST_F(RegistryTest, BeginsWhenEnoughAreThere) {
  EXPECT_EQ(beat(a_, 0).standing, Standing::kWaiting);
  const auto reply = beat(b_, 0);
  ASSERT_EQ(reply.standing, Standing::kMember);
  ASSERT_EQ(reply.maps.size(), 1U);
  EXPECT_EQ(reply.maps[0].epoch, 1U);
  EXPECT_TRUE(reply.maps[0].servers[0].ready && reply.maps[0].servers[1].ready);
  EXPECT_GT(reply.lease, Duration{0});
  EXPECT_EQ(beat(a_, 0).maps.size(), 1U);
  EXPECT_TRUE(beat(a_, 1).maps.empty());
}

TEST_F(RegistryTest, OneThatJoinsIsReadyWhenItHasAllAndAllHaveEntered) {
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

TEST_F(RegistryTest, OneInAnEpochBecomesReady) {
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

TEST_F(RegistryTest, WhoIsSilentIsRemovedForEver) {
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

TEST_F(RegistryTest, IfAllAreSilentNobodyIsRemoved) {
  beat(a_, 0);
  beat(b_, 0);
  for (int i = 0; i < 100; ++i) {
    now_ += 100ms;
    EXPECT_TRUE(registry_->expire(now_).empty());
  }
  EXPECT_EQ(beat(a_, 1).standing, Standing::kMember);
}

TEST_F(RegistryTest, ACoordinatorThatWasAwayBlamesNobody) {
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

TEST_F(RegistryTest, OneThatIsAheadOfTheCoordinatorWaits) {
  beat(a_, 0);
  EXPECT_EQ(beat(b_, 7).standing, Standing::kWaiting);
  EXPECT_EQ(registry_->maps().newest().epoch, 0U) << "it does not count for the beginning";
}

TEST_F(RegistryTest, APlaceIsTakenUntilTheFirstOneIsGone) {
  beat(a_, 0);
  beat(b_, 0);
  const ServerKey again{"b", 20};
  EXPECT_EQ(beat(again, 0).standing, Standing::kWaiting);
  registry_->ended(b_);
  EXPECT_EQ(beat(again, 0).standing, Standing::kMember);
  EXPECT_EQ(beat(b_, 1).standing, Standing::kRemoved);
}

TEST_F(RegistryTest, WhoWaitedAndWentIsForgotten) {
  beat(a_, 0);
  now_ += 10s;
  registry_->expire(now_);
  EXPECT_EQ(beat(b_, 0).standing, Standing::kWaiting);
  EXPECT_EQ(beat({"a", 10}, 0).standing, Standing::kMember);
  EXPECT_EQ(registry_->maps().newest().servers.size(), 2U);
}

TEST_F(RegistryTest, APlaceKeepsItsHost) {
  registry_->heard({a_, 0, false, "x:1", 5, "x", 0, {}}, now_);
  registry_->heard({b_, 0, false, "y:1", 6, "y", 0, {}}, now_);
  settle();
  EXPECT_EQ(registry_->maps().newest().find(a_)->host, "x");
  registry_->ended(a_);
  EXPECT_EQ(registry_->maps().newest().away, (std::vector<ServerPlace>{{"a", "x"}}));
  const ServerKey again{"a", 10};
  registry_->heard({again, 0, false, "z:1", 7, "z", 0, {}}, now_);
  EXPECT_EQ(registry_->maps().newest().find(again)->host, "x") << "its place is there";
  EXPECT_EQ(registry_->maps().newest().away.size(), 1U) << "it is joining";
  settle();
  settle();
  EXPECT_TRUE(registry_->maps().newest().find(again)->ready);
  EXPECT_TRUE(registry_->maps().newest().away.empty());
}

TEST_F(RegistryTest, OneThatNeverWasReadyLeavesNoPlace) {
  beat(a_, 0);
  beat(b_, 0);
  beat(c_, 0);
  registry_->ended(c_);
  EXPECT_TRUE(registry_->maps().newest().away.empty());
}

TEST_F(RegistryTest, OfTwoThatCannotReachEachOtherTheLaterOneGoes) {
  beat(a_, 0);
  beat(b_, 0);
  settle();
  // One of them says so; the other has not noticed.
  beat_for(1500ms, {{a_, {b_}}});
  EXPECT_EQ(beat(b_, 1, true).standing, Standing::kMember) << "not before it has lasted";
  now_ += 100ms;
  beat(b_, 1, true);
  registry_->heard({a_, 1, true, {}, 0, {}, 0, {{b_, 1500ms}}}, now_);
  registry_->expire(now_);
  const auto told = beat(b_, 1, true);
  EXPECT_EQ(told.standing, Standing::kRemoved);
  EXPECT_NE(told.reason.find("it and a could not reach each other"), std::string::npos);
  EXPECT_TRUE(is_there(b_)) << "it may still let clients read";
  beat_for(400ms, {});
  EXPECT_FALSE(is_there(b_));
  EXPECT_TRUE(is_there(a_));
}

TEST_F(RegistryTest, TheOneThatTheMostOthersDoNotReachGoes) {
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

TEST_F(RegistryTest, NobodyGoesWithWhomAShardWouldBeLost) {
  beat(a_, 0);
  beat(b_, 0);
  settle();
  lacking_ = {a_};
  beat_for(5s, {{a_, {b_}}, {b_, {a_}}});
  EXPECT_FALSE(is_there(a_)) << "b has what a lacks";
  EXPECT_TRUE(is_there(b_));
}

TEST_F(RegistryTest, IfBothLackSomethingBothStay) {
  beat(a_, 0);
  beat(b_, 0);
  settle();
  lacking_ = {a_, b_};
  beat_for(5s, {{a_, {b_}}, {b_, {a_}}});
  EXPECT_TRUE(is_there(a_) && is_there(b_));
  lacking_ = {};
  beat_for(3s, {{a_, {b_}}, {b_, {a_}}});
  EXPECT_FALSE(is_there(b_));
}

TEST_F(RegistryTest, OneThatJoinsGoesBeforeOneThatIsReadyAndThenWaits) {
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

TEST_F(RegistryTest, WithOneCopyNobodyWhoIsReadyGoes) {
  RegistryOptions options = make_options();
  options.copies = 1;
  registry_.emplace(options);
  beat(a_, 0);
  beat(b_, 0);
  settle();
  beat_for(5s, {{a_, {b_}}, {b_, {a_}}});
  EXPECT_TRUE(is_there(a_) && is_there(b_));
}

TEST_F(RegistryTest, OneThatIsGoneIsNotSaidToBeOutOfReach) {
  beat(a_, 0);
  beat(b_, 0);
  settle();
  registry_->expire(now_);
  // The coordinator is suspended, b ends, and a is heard when the coordinator continues.
  now_ += 20s;
  for (int i = 0; i < 10; ++i) {
    now_ += 50ms;
    registry_->heard({b_, 1, true, {}, 0, {}, 0, {{a_, 20s}}}, now_);
    registry_->expire(now_);
  }
  EXPECT_FALSE(is_there(a_));
  EXPECT_EQ(beat(b_, registry_->maps().newest().epoch).standing, Standing::kMember);
}

TEST_F(RegistryTest, StatusSaysWhoIsThere) {
  EXPECT_EQ(registry_->status(now_).first, 2U);
  beat(a_, 0);
  EXPECT_EQ(registry_->status(now_).epoch, 0U);
  EXPECT_EQ(registry_->status(now_).servers.at(0).standing, ServerStatus::Standing::kWaiting);
  beat(b_, 0);
  settle();
  registry_->heard({c_, 0, false, "h:1", 5, "h", 70, {{a_, 2s}}}, now_);
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

TEST_F(RegistryTest, OneThatMissedTooMuchMustStartAgain) {
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

}  // namespace
}  // namespace muster::ps
