#include "muster/optim/norm.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"

namespace muster::optim {
namespace {

TEST(SumOfSquares, IsExactWhereDoubleIsAndTheSameOnEveryInstructionSet) {
  RandomStream random(1, Purpose::kUser);
  for (size_t n = 0; n < 100; ++n) {
    std::vector<float> x(n);
    long double expected = 0;
    long double clipped = 0;
    for (float& v : x) {
      v = random.normal() * 100;
      const auto wide = static_cast<long double>(v);
      expected += wide * wide;
      clipped += std::min(wide * wide, 50.0L * 50.0L);
    }
    const double sum = sum_of_squares(x);
    EXPECT_NEAR(sum, static_cast<double>(expected), 1e-14 * sum);
    const double clipped_sum = sum_of_squares(x, 50);
    EXPECT_NEAR(clipped_sum, static_cast<double>(clipped), 1e-14 * sum);
    for (const Isa isa : usable_isas()) {
      EXPECT_EQ(sum_of_squares(x, 0, isa), sum) << isa_name(isa);
      EXPECT_EQ(sum_of_squares(x, 50, isa), clipped_sum) << isa_name(isa);
    }
  }
}

// The order of additions is part of the format of a run: numbers chosen so that any other order of
// these additions gives another sum. Element i goes to sum i mod 16; then sums are added pairwise.
TEST(SumOfSquares, OrderIsFixed) {
  std::vector<float> x(48);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = std::ldexp(1.0f + 0.123f * static_cast<float>(i), static_cast<int>(i * 7 % 26));
  }
  double sums[16] = {};
  for (size_t i = 0; i < x.size(); ++i) {
    sums[i % 16] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  for (const size_t width : {8, 4, 2, 1}) {
    for (size_t j = 0; j < width; ++j) sums[j] += sums[j + width];
  }
  EXPECT_EQ(sum_of_squares(x), sums[0]);
  double in_order = 0;
  for (const float v : x) in_order += static_cast<double>(v) * static_cast<double>(v);
  EXPECT_NE(sum_of_squares(x), in_order) << "these numbers do not show the order";
}

TEST(SumOfSquares, DoesNotOverflowWhereFloatWould) {
  const std::vector<float> x(4096, 1e38f);
  EXPECT_TRUE(std::isfinite(sum_of_squares(x)));
}

TEST(ClipFactor, AsTorchClipsByNorm) {
  EXPECT_EQ(clip_factor(5, 0), 1);    // off
  EXPECT_EQ(clip_factor(0.5, 1), 1);  // already small
  EXPECT_EQ(clip_factor(0, 1), 1);
  EXPECT_DOUBLE_EQ(clip_factor(4, 1), 1 / (4 + 1e-6));
  EXPECT_TRUE(std::isnan(clip_factor(std::nan(""), 1)));
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1), 0);
}

}  // namespace
}  // namespace muster::optim
