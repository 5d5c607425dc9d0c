#include "muster/train/due.h"

#include <gtest/gtest.h>

namespace muster::train {
namespace {

using config::Every;

TEST(Due, EveryNthStep) {
  const Every every{3, Every::Unit::kSteps};
  for (int64_t step = 1; step <= 12; ++step)
    EXPECT_EQ(is_due(every, {step}), step % 3 == 0) << step;
}

TEST(Due, OncePerPassThoughBatchesStraddlePasses) {
  const Every every{1, Every::Unit::kPasses};
  int times = 0;
  uint64_t samples = 0;
  for (int64_t step = 1; step <= 100; ++step) {
    samples += 7;
    times += is_due(every, {step, samples, 7, 100}) ? 1 : 0;
  }
  EXPECT_EQ(times, 7);  // 700 samples are 7 passes of 100
}

TEST(Due, PartsOfAPass) {
  const Every every{0.5, Every::Unit::kPasses};
  EXPECT_TRUE(is_due(every, {5, 50, 10, 100}));
  EXPECT_FALSE(is_due(every, {6, 60, 10, 100}));
}

TEST(Due, SecondsLookAtTheClock) {
  const Every every{90, Every::Unit::kSeconds};
  EXPECT_FALSE(is_due(every, {1, 1, 1, 1, 89.9}));
  EXPECT_TRUE(is_due(every, {1, 1, 1, 1, 90}));
}

TEST(Due, StepsThatAreCommittedTogetherMayCrossTheirMultiple) {
  const Every every = {10, Every::Unit::kSteps};
  EXPECT_TRUE(is_due(every, {.step = 14, .last_steps = 7}));
  EXPECT_FALSE(is_due(every, {.step = 7, .last_steps = 7}));
  EXPECT_TRUE(is_due(every, {.step = 21, .last_steps = 7}));
  EXPECT_FALSE(is_due(every, {.step = 28, .last_steps = 7}));
}

TEST(Due, ZeroIsNever) { EXPECT_FALSE(is_due({0, Every::Unit::kSteps}, {1})); }

}  // namespace
}  // namespace muster::train
