#include "muster/base/clock.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using namespace std::chrono_literals;

TEST(FakeClock, MovesOnlyWhenTold) {
  FakeClock clock(WallTime{1000s});
  const Moment start = clock.now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(250ms);
  EXPECT_EQ(clock.now() - start, 250ms);
  EXPECT_EQ(clock.wall(), WallTime{1000s} + 250ms);
}

TEST(SystemClock, NeverGoesBack) {
  const SystemClock clock;
  Moment last = clock.now();
  for (int i = 0; i < 1000; ++i) {
    const Moment now = clock.now();
    ASSERT_GE(now, last);
    last = now;
  }
  EXPECT_GT(clock.wall(), WallTime{});
}

TEST(Clock, WritesTimesInUtc) {
  // 2026-03-01 12:30:05 UTC is 1772368205 seconds after 1970.
  const WallTime time{1772368205s + 999ms};
  EXPECT_EQ(utc_timestamp(time), "2026-03-01T12:30:05Z");
  EXPECT_EQ(utc_timestamp(time, true), "20260301-123005");
  EXPECT_EQ(utc_timestamp(WallTime{}), "1970-01-01T00:00:00Z");
  EXPECT_EQ(utc_timestamp(WallTime{-1ms}), "1969-12-31T23:59:59Z");
  EXPECT_DOUBLE_EQ(seconds(1500ms), 1.5);
}

}  // namespace
}  // namespace muster
