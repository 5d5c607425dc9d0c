#include "muster/base/random.h"

#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

using Block = std::array<uint32_t, 4>;

// The known answers that come with the authors' Random123 library (kat_vectors, philox4x32-10).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t f = 0xffffffff;
  EXPECT_EQ(philox({f, f}, {f, f, f, f}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, IsConstexpr) { static_assert(philox({0, 0}, {0, 0, 0, 0})[0] == 0x6627e8d5); }

// Part of the format of a run: if this changes, no old run can be repeated.
TEST(RandomStream, KeysAreForever) {
  EXPECT_EQ(RandomStream(7, Purpose::kInit, 1, 2).key(),
            RandomStream(7, Purpose::kInit, 1, 2).key());
  RandomStream stream(7, Purpose::kDropout, 3, 4);
  const auto key = stream.key();
  EXPECT_EQ(stream.block(0), philox(key, {0, 0, 0, 0}));
  EXPECT_EQ(stream.block((uint64_t{5} << 32) | 9), philox(key, {9, 5, 0, 0}));
  EXPECT_EQ(RandomStream(0, Purpose::kInit).key(),
            (std::array<uint32_t, 2>{0x36eee9fb, 0xa65eda50}));
  EXPECT_EQ(RandomStream(7, Purpose::kDropout, 3, 4).key(),
            (std::array<uint32_t, 2>{0xc29901a8, 0xa52ccae3}));
}

TEST(RandomStream, DrawsInTheOrderOfItsBlocks) {
  RandomStream stream(1, Purpose::kUser);
  const RandomStream same(1, Purpose::kUser);
  for (uint64_t i = 0; i < 3; ++i) {
    for (const uint32_t word : same.block(i)) EXPECT_EQ(stream.next_u32(), word);
  }
  RandomStream wide(1, Purpose::kUser);
  const auto block = same.block(0);
  EXPECT_EQ(wide.next_u64(), block[0] | uint64_t{block[1]} << 32);
}

TEST(RandomStream, EveryCoordinateMakesAnotherStream) {
  std::set<std::array<uint32_t, 2>> keys;
  size_t streams = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (const auto purpose :
         {Purpose::kInit, Purpose::kDropout, Purpose::kAugment, Purpose::kOrder}) {
      for (uint64_t a = 0; a < 10; ++a) {
        for (uint64_t b = 0; b < 10; ++b, ++streams)
          keys.insert(RandomStream(seed, purpose, a, b).key());
      }
    }
  }
  EXPECT_EQ(keys.size(), streams);
}

// Pearson's statistic for `counts` that should all be the same; about bins - 1, and beyond six
// deviations of sqrt(2 * bins) with a chance of one in a billion. The stream is fixed, so the test
// cannot fail by luck.
void expect_uniform(const std::vector<int>& counts) {
  double total = 0;
  for (const int count : counts) total += count;
  const double expected = total / static_cast<double>(counts.size());
  double chi2 = 0;
  for (const int count : counts) chi2 += (count - expected) * (count - expected) / expected;
  const auto freedom = static_cast<double>(counts.size() - 1);
  EXPECT_LT(std::abs(chi2 - freedom), 6 * std::sqrt(2 * freedom));
}

TEST(RandomStream, UniformIsUniform) {
  RandomStream stream(2, Purpose::kUser);
  std::vector<int> counts(1000);
  double sum = 0;
  constexpr int n = 1000000;
  for (int i = 0; i < n; ++i) {
    const float u = stream.uniform();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ++counts[static_cast<size_t>(u * 1000)];
    sum += u;
  }
  expect_uniform(counts);
  EXPECT_NEAR(sum / n, 0.5, 6 * std::sqrt(1.0 / 12 / n));
}

TEST(RandomStream, BelowIsUniformForEveryN) {
  for (const uint64_t n : {1, 2, 3, 7, 10, 100}) {
    RandomStream stream(n, Purpose::kUser);
    std::vector<int> counts(n);
    for (int i = 0; i < 100000; ++i) {
      const uint64_t value = stream.below(n);
      ASSERT_LT(value, n);
      ++counts[value];
    }
    if (n > 1) expect_uniform(counts);
  }
  // Where a plain remainder would favour the lower half two to one.
  RandomStream stream(3, Purpose::kUser);
  const uint64_t n = uint64_t{3} << 62;
  std::vector<int> thirds(3);
  for (int i = 0; i < 90000; ++i) ++thirds[stream.below(n) >> 62];
  expect_uniform(thirds);
}

TEST(RandomStream, NormalHasTheMomentsOfANormal) {
  RandomStream stream(4, Purpose::kUser);
  constexpr int n = 1000000;
  double sum = 0, square = 0, fourth = 0;
  for (int i = 0; i < n; ++i) {
    const double x = stream.normal();
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    square += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / n, 0, 6 / std::sqrt(n));
  EXPECT_NEAR(square / n, 1, 6 * std::sqrt(2.0 / n));
  EXPECT_NEAR(fourth / n, 3, 6 * std::sqrt(96.0 / n));
}

// Streams that differ in one coordinate only, as lanes of one step do, are unrelated.
TEST(RandomStream, NeighbouringStreamsAreUncorrelated) {
  for (uint64_t lane = 0; lane < 8; ++lane) {
    RandomStream a(1, Purpose::kDropout, 100, lane), b(1, Purpose::kDropout, 100, lane + 1);
    constexpr int n = 100000;
    double product = 0;
    for (int i = 0; i < n; ++i) product += (a.uniform() - 0.5) * (b.uniform() - 0.5);
    EXPECT_NEAR(product / n, 0, 6.0 / 12 / std::sqrt(n)) << "lane " << lane;
  }
}

}  // namespace
}  // namespace muster
