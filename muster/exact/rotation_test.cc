#include "muster/exact/rotation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"

namespace muster::exact {
namespace {

std::vector<float> normal(size_t n) {
  RandomStream random(1, Purpose::kUser);
  std::vector<float> x(n);
  for (float& v : x) v = random.normal();
  return x;
}

double norm(const std::vector<float>& x) {
  double square = 0;
  for (const float v : x) square += double{v} * v;
  return std::sqrt(square);
}

TEST(Rotation, BackIsTheInverse) {
  const Rotation rotation(7, 3);
  for (const size_t n : {0, 1, 15, 31, 32, 33, 64, 100, 511, 1000, 2500, 4095, 4096}) {
    const auto x = normal(n);
    auto y = x;
    rotate(y, rotation, 12345);
    EXPECT_EQ(y == x, n < 32);
    rotate_back(y, rotation, 12345);
    for (size_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], x[i], 1e-5) << i << " of " << n;
  }
}

TEST(Rotation, IsTheSameOnEveryInstructionSet) {
  const Rotation rotation(7, 3);
  for (const size_t n : {100, 2500, 4096}) {
    auto expected = normal(n);
    rotate(expected, rotation, 64, Isa::kBaseline);
    for (const Isa isa : usable_isas()) {
      auto y = normal(n);
      rotate(y, rotation, 64, isa);
      ASSERT_EQ(y, expected);
    }
  }
}

TEST(Rotation, KeepsLengthsAndSpreadsOneLargeElementOverMany) {
  std::vector<float> x(4096, 0);
  x[1234] = 16;
  rotate(x, Rotation(1, 1), 0);
  EXPECT_EQ(std::ranges::count_if(x, [](float v) { return std::abs(v) == 1; }), 256);
  auto y = normal(4096);
  const double before = norm(y);
  rotate(y, Rotation(1, 1), 0);
  EXPECT_NEAR(norm(y), before, before * 1e-5);
}

TEST(Rotation, IsAnotherOneForEachSeedAndStep) {
  const auto rotated = [](uint64_t seed, int64_t step) {
    auto x = normal(4096);
    rotate(x, Rotation(seed, step), 0);
    return x;
  };
  EXPECT_EQ(rotated(1, 1), rotated(1, 1));
  EXPECT_NE(rotated(1, 1), rotated(2, 1));
  EXPECT_NE(rotated(1, 1), rotated(1, 2));
}

// What is rounded afterwards is unbiased; what matters is linearity, up to rounding.
TEST(Rotation, IsLinear) {
  const Rotation rotation(5, 6);
  auto a = normal(4096);
  auto b = normal(4096);
  std::ranges::reverse(b);
  std::vector<float> sum(4096);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = a[i] + b[i];
  for (auto* x : {&a, &b, &sum}) rotate(*x, rotation, 0);
  for (size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i], a[i] + b[i], 1e-5);
}

}  // namespace
}  // namespace muster::exact
