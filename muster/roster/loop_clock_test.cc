#include "muster/roster/loop_clock.h"

#include <gtest/gtest.h>

namespace muster::roster {
namespace {

using namespace std::chrono_literals;

constexpr Moment kStart{100s};

TEST(LoopClock, GoesWithTheRealTimeWhileTheLoopRuns) {
  LoopClock clock(250ms);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(clock.now(kStart + i * 300ms), kStart + i * 300ms);
  EXPECT_EQ(clock.lost(), 0ns);
}

TEST(LoopClock, StandsStillWhileTheLoopDoesNotRun) {
  LoopClock clock(250ms);
  (void)clock.now(kStart);
  // 3 s of suspension: what is left is one usual wait.
  EXPECT_EQ(clock.now(kStart + 3s), kStart + 250ms);
  EXPECT_EQ(clock.now(kStart + 3100ms), kStart + 350ms);
  EXPECT_EQ(clock.real(kStart + 350ms), kStart + 3100ms);
  EXPECT_EQ(clock.now(kStart + 10s), kStart + 600ms);
}

}  // namespace
}  // namespace muster::roster
