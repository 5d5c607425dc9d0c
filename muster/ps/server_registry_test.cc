#include "muster/ps/server_registry.h"

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

using namespace std::chrono_literals;
using Standing = HeartbeatReply::Standing;

class RegistryTest : public ::testing::Test {
 protected:
  RegistryTest() : registry_(make_options()) {}
  static RegistryOptions make_options() {
    RegistryOptions options;
    options.first = 2;
    return options;
  }

  HeartbeatReply beat(const ServerKey& key, uint64_t entered, bool has_all = false) {
    return registry_.heard({key, entered, has_all, {}, 0}, now_);
  }
  // All who are in the newest map have entered it, and have what they hold.
  void settle() {
    const auto servers = registry_.maps().newest().servers;
    for (const auto& server : servers) beat(server.key, registry_.maps().newest().epoch, true);
  }

  const ServerKey a_{"a", 1};
  const ServerKey b_{"b", 2};
  const ServerKey c_{"c", 3};
  ServerRegistry registry_;
  Moment now_{1000s};
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
  const auto& newest = registry_.maps().newest();
  EXPECT_EQ(newest.epoch, 4U);
  EXPECT_NE(newest.find(c_)->ready, newest.find(d)->ready);
  settle();
  settle();
  EXPECT_TRUE(registry_.maps().newest().find(c_)->ready);
  EXPECT_TRUE(registry_.maps().newest().find(d)->ready);
}

TEST_F(RegistryTest, WhoIsSilentIsRemovedForEver) {
  beat(a_, 0);
  beat(b_, 0);
  for (int i = 0; i < 3; ++i) {
    now_ += 100ms;
    beat(a_, 1);
    EXPECT_TRUE(registry_.expire(now_).empty());
  }
  now_ += 60ms;
  EXPECT_EQ(registry_.expire(now_), std::vector{b_});
  EXPECT_EQ(registry_.maps().newest().epoch, 2U);
  EXPECT_EQ(beat(b_, 1).standing, Standing::kRemoved);
  const ServerKey again{"b", 20};
  EXPECT_EQ(beat(again, 0).standing, Standing::kMember);
}

TEST_F(RegistryTest, IfAllAreSilentNobodyIsRemoved) {
  beat(a_, 0);
  beat(b_, 0);
  for (int i = 0; i < 100; ++i) {
    now_ += 100ms;
    EXPECT_TRUE(registry_.expire(now_).empty());
  }
  EXPECT_EQ(beat(a_, 1).standing, Standing::kMember);
}

TEST_F(RegistryTest, ACoordinatorThatWasAwayBlamesNobody) {
  beat(a_, 0);
  beat(b_, 0);
  registry_.expire(now_);
  now_ += 10s;
  beat(a_, 1);
  EXPECT_TRUE(registry_.expire(now_).empty());
  for (int i = 0; i < 4; ++i) {
    now_ += 100ms;
    beat(a_, 1);
    const auto removed = registry_.expire(now_);
    EXPECT_EQ(removed.empty(), i < 3) << i;
  }
}

TEST_F(RegistryTest, OneThatIsAheadOfTheCoordinatorWaits) {
  beat(a_, 0);
  EXPECT_EQ(beat(b_, 7).standing, Standing::kWaiting);
  EXPECT_EQ(registry_.maps().newest().epoch, 0U) << "it does not count for the beginning";
}

TEST_F(RegistryTest, APlaceIsTakenUntilTheFirstOneIsGone) {
  beat(a_, 0);
  beat(b_, 0);
  const ServerKey again{"b", 20};
  EXPECT_EQ(beat(again, 0).standing, Standing::kWaiting);
  registry_.ended(b_);
  EXPECT_EQ(beat(again, 0).standing, Standing::kMember);
  EXPECT_EQ(beat(b_, 1).standing, Standing::kRemoved);
}

TEST_F(RegistryTest, WhoWaitedAndWentIsForgotten) {
  beat(a_, 0);
  now_ += 10s;
  registry_.expire(now_);
  EXPECT_EQ(beat(b_, 0).standing, Standing::kWaiting);
  EXPECT_EQ(beat({"a", 10}, 0).standing, Standing::kMember);
  EXPECT_EQ(registry_.maps().newest().servers.size(), 2U);
}

TEST_F(RegistryTest, OneThatMissedTooMuchMustStartAgain) {
  beat(a_, 0);
  beat(b_, 0);
  for (uint64_t i = 0; i < MapHistory::kKept + 1; ++i) {
    const ServerKey key{"c", 100 + i};
    beat(key, 0);
    registry_.ended(key);
  }
  EXPECT_EQ(beat(a_, 1).standing, Standing::kRemoved);
  EXPECT_EQ(beat(b_, registry_.maps().newest().epoch - 1).standing, Standing::kMember);
}

}  // namespace
}  // namespace muster::ps
