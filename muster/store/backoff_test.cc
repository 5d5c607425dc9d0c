#include "muster/store/backoff.h"

#include <set>

#include <gtest/gtest.h>

namespace muster::store {
namespace {

using std::chrono::milliseconds;

constexpr Backoff::Options kOptions{
    .first = milliseconds(100), .most = milliseconds(1000), .shared_from = 3};
Moment at(int ms) { return Moment{} + milliseconds(ms); }

TEST(BackoffTest, ARequestWaitsLongerWithEachFailureUpToTheMost) {
  for (int tries = 1; tries <= 60; ++tries) {
    Backoff backoff(kOptions, static_cast<uint64_t>(tries));
    const auto waits = backoff.failed(at(10), at(0), tries) - at(10);
    const auto whole = tries <= 4 ? milliseconds(100 << (tries - 1)) : milliseconds(1000);
    EXPECT_GE(waits, whole / 2) << tries;
    EXPECT_LE(waits, whole) << tries;
  }
}

TEST(BackoffTest, OneFailureDelaysNoOtherRequest) {
  Backoff backoff(kOptions, 1);
  EXPECT_GT(backoff.failed(at(10), at(0), 1), at(10));
  EXPECT_EQ(backoff.start_at(at(11)), at(11));
  EXPECT_GT(backoff.failed(at(200), at(150), 2), at(200));
  EXPECT_EQ(backoff.start_at(at(201)), at(201));
}

TEST(BackoffTest, AfterFailuresInARowAllWaitAndStartSpread) {
  Backoff backoff(kOptions, 1);
  (void)backoff.failed(at(10), at(0), 1);
  (void)backoff.failed(at(30), at(20), 1);
  (void)backoff.failed(at(50), at(40), 1);
  std::set<Moment> starts;
  for (int i = 0; i < 20; ++i) {
    const auto start = backoff.start_at(at(60));
    EXPECT_GE(start, at(50 + 200));  // half of 400
    EXPECT_LE(start, at(50 + 800));
    starts.insert(start);
  }
  EXPECT_GT(starts.size(), 15U);
  EXPECT_EQ(backoff.start_at(at(1000)), at(1000));
}

TEST(BackoffTest, RequestsThatFailTogetherCountOnce) {
  Backoff backoff(kOptions, 1);
  for (int i = 0; i < 50; ++i) (void)backoff.failed(at(100 + i), at(i), 1);
  EXPECT_EQ(backoff.level(), 1);
  EXPECT_EQ(backoff.start_at(at(151)), at(151));
}

TEST(BackoffTest, ASuccessEndsIt) {
  Backoff backoff(kOptions, 1);
  for (int i = 1; i <= 5; ++i) (void)backoff.failed(at(100 * i), at(100 * i - 1), 1);
  EXPECT_GT(backoff.start_at(at(501)), at(501));
  EXPECT_FALSE(backoff.succeeded(at(490)));  // was asked before the last failure
  EXPECT_EQ(backoff.level(), 5);
  EXPECT_TRUE(backoff.succeeded(at(500)));
  EXPECT_EQ(backoff.level(), 0);
  EXPECT_EQ(backoff.start_at(at(501)), at(501));
  (void)backoff.failed(at(600), at(599), 1);
  EXPECT_FALSE(backoff.succeeded(at(601))) << "one failure delays only itself";
}

TEST(ReadTimesTest, KnowsTheP95OfEachSize) {
  ReadTimes times;
  EXPECT_FALSE(times.p95(4096));
  for (int i = 1; i <= 100; ++i) times.add(4096, milliseconds(i));
  EXPECT_EQ(times.p95(4096), milliseconds(96));
  EXPECT_EQ(times.p95(8191), milliseconds(96));
  EXPECT_FALSE(times.p95(8192));
  EXPECT_FALSE(times.p95(0));
  // Old ones are forgotten.
  for (int i = 0; i < 128; ++i) times.add(5000, milliseconds(7));
  EXPECT_EQ(times.p95(4096), milliseconds(7));
  times.add(UINT64_MAX, milliseconds(1));
}

TEST(ReadTimesTest, ASecondRequestGoesOutAtTwiceTheP95) {
  const HedgeOptions options;
  ReadTimes times;
  EXPECT_EQ(hedge_after(options, times, 1000), std::chrono::seconds(2));
  EXPECT_EQ(hedge_after(options, times, 1 << 20), std::chrono::seconds(4));
  for (int i = 0; i < 100; ++i) times.add(1 << 20, milliseconds(80));
  EXPECT_EQ(hedge_after(options, times, 1 << 20), milliseconds(160));
  for (int i = 0; i < 128; ++i) times.add(1 << 20, milliseconds(1));
  EXPECT_EQ(hedge_after(options, times, 1 << 20), milliseconds(50));
}

}  // namespace
}  // namespace muster::store
