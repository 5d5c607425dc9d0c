#include "muster/base/float_mode.h"

#include <limits>

#include <gtest/gtest.h>

#include "muster/base/thread.h"

namespace muster {
namespace {

// volatile: computed by the processor, not by the compiler.
float times(float x, float factor) {
  const volatile float value = x;
  return value * factor;
}
float half_of(float x) { return times(x, 0.5f); }
float twice(float x) { return times(x, 2.0f); }

TEST(FloatMode, SubnormalsAreZeroInThisThreadAndThoseItStarts) {
  constexpr float kSmallest = std::numeric_limits<float>::min();
  constexpr float kSubnormal = std::numeric_limits<float>::denorm_min();
  const Thread before("before", [&] { EXPECT_FALSE(flushes_subnormals()); });
  Thread("flushing", [&] {
    EXPECT_NE(half_of(kSmallest), 0.0f);
    flush_subnormals();
    EXPECT_TRUE(flushes_subnormals());
    EXPECT_EQ(half_of(kSmallest), 0.0f);  // a result
    EXPECT_EQ(twice(kSubnormal), 0.0f);   // an operand
    EXPECT_EQ(half_of(2 * kSmallest), kSmallest);
    Thread("started", [&] {
      EXPECT_TRUE(flushes_subnormals());
      EXPECT_EQ(half_of(kSmallest), 0.0f);
    }).join();
  }).join();
  EXPECT_FALSE(flushes_subnormals());
  {
    const FlushSubnormals flush;
    EXPECT_EQ(half_of(kSmallest), 0.0f);
    const FlushSubnormals again;
  }
  EXPECT_NE(half_of(kSmallest), 0.0f);
}

}  // namespace
}  // namespace muster
