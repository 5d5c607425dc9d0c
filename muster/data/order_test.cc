#include "muster/data/order.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <unordered_set>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"
#include "muster/data/data_testing.h"

namespace muster::data {
namespace {

using testing::excess;

void expect_bijection(uint64_t seed, uint64_t n, uint64_t pass_number) {
  const auto pass = Order(seed, n).pass(pass_number);
  std::vector<bool> seen(n);
  for (uint64_t position = 0; position < n; ++position) {
    const uint64_t index = pass(position);
    ASSERT_LT(index, n) << "n " << n;
    ASSERT_FALSE(seen[index]) << "n " << n << ": index " << index << " comes twice";
    seen[index] = true;
    ASSERT_EQ(pass.position_of(index), position) << "n " << n;
  }
}

TEST(OrderTest, IsAPermutationForEverySmallSize) {
  for (uint64_t n = 1; n <= 3000; ++n) expect_bijection(7, n, n % 3);
}

TEST(OrderTest, IsAPermutationForSelectedSizes) {
  for (const uint64_t n : {4095U, 4096U, 4097U, 60000U, 65535U, 65536U, 65537U, 99991U, 262144U,
                           524287U, 1000000U, 1048575U, 1048576U}) {
    expect_bijection(3, n, 1);
  }
}

TEST(OrderTest, LargeSizesCanBeUndoneEverywhereWeLook) {
  // position_of(index) being the inverse at every sampled point proves that no two of them meet.
  for (const int bits : {21, 24, 31, 32, 33, 39, 40}) {
    for (const uint64_t n :
         {(uint64_t{1} << bits) - 1, uint64_t{1} << bits, (uint64_t{1} << (bits - 1)) + 12345}) {
      const auto pass = Order(11, n).pass(5);
      RandomStream random(1, Purpose::kUser, n);
      for (int i = 0; i < 3000; ++i) {
        // The ends too: that is where cycle walking happens.
        const uint64_t position = i < 1000   ? static_cast<uint64_t>(i) % n
                                  : i < 2000 ? n - 1 - static_cast<uint64_t>(i - 1000)
                                             : random.below(n);
        const uint64_t index = pass(position);
        ASSERT_LT(index, n);
        ASSERT_EQ(pass.position_of(index), position);
        ASSERT_EQ(pass(pass.position_of(position)), position);
      }
    }
  }
}

TEST(OrderTest, LargeSizesAreInjectiveOnARun) {
  const auto pass = Order(5, Order::kMaxSize).pass(0);
  std::unordered_set<uint64_t> seen;
  for (uint64_t position = 0; position < 200000; ++position) seen.insert(pass(position));
  EXPECT_EQ(seen.size(), 200000U);
}

TEST(OrderTest, NeighboursAreSpreadEvenly) {
  // Consecutive positions of one pass must fall evenly over the data, also in the low bits.
  for (const uint64_t n : {uint64_t{60000}, uint64_t{1} << 30, (uint64_t{1} << 40) - 7}) {
    const auto pass = Order(2, n).pass(0);
    std::vector<uint64_t> high(100);
    std::vector<uint64_t> low(64);
    std::vector<uint64_t> step(100);
    uint64_t last = pass(0);
    for (uint64_t position = 1; position <= 50000; ++position) {
      const uint64_t index = pass(position);
      ++high[index * 100 / n];
      ++low[index % 64];
      ++step[(index + n - last) % n * 100 / n];
      last = index;
    }
    EXPECT_LT(excess(high), 4.5) << n;
    EXPECT_LT(excess(low), 4.5) << n;
    EXPECT_LT(excess(step), 4.5) << n;
  }
}

TEST(OrderTest, EveryPositionReachesEveryIndexEvenlyOverSeedsAndPasses) {
  constexpr uint64_t kSize = 37;
  for (const uint64_t position : {0U, 1U, 17U, 36U}) {
    std::vector<uint64_t> over_seeds(kSize);
    std::vector<uint64_t> over_passes(kSize);
    for (uint64_t i = 0; i < 40000; ++i) {
      ++over_seeds[Order(i, kSize).at(0, position)];
      ++over_passes[Order(9, kSize).at(i, position)];
    }
    EXPECT_LT(excess(over_seeds), 4.5) << position;
    EXPECT_LT(excess(over_passes), 4.5) << position;
  }
}

TEST(OrderTest, PairsOfPositionsAreIndependent) {
  constexpr uint64_t kSize = 12;
  for (const auto& [p, q] : {std::pair{0U, 1U}, std::pair{0U, 2U}, std::pair{3U, 11U}}) {
    std::vector<uint64_t> counts(kSize * (kSize - 1));
    for (uint64_t seed = 0; seed < 60000; ++seed) {
      const auto pass = Order(seed, kSize).pass(0);
      const uint64_t i = pass(p);
      const uint64_t j = pass(q);
      ++counts[i * (kSize - 1) + (j > i ? j - 1 : j)];
    }
    EXPECT_LT(excess(counts), 4.5) << p << " " << q;
  }
}

TEST(OrderTest, AllPermutationsOfAFewSamplesAreEquallyLikely) {
  for (const uint64_t n : {2U, 3U, 4U, 5U, 6U}) {
    std::vector<uint64_t> permutation(n);
    std::iota(permutation.begin(), permutation.end(), 0);
    std::map<std::vector<uint64_t>, size_t> number;
    do {
      number.emplace(permutation, number.size());
    } while (std::next_permutation(permutation.begin(), permutation.end()));
    std::vector<uint64_t> counts(number.size());
    const uint64_t seeds = std::max<uint64_t>(30000, 250 * counts.size());
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      const auto pass = Order(seed, n).pass(0);
      for (uint64_t i = 0; i < n; ++i) permutation[i] = pass(i);
      ++counts[number.at(permutation)];
    }
    EXPECT_LT(excess(counts), 4.5) << n;
  }
}

// Fixed points between two orders: a random pair has one on average, whatever n.
double agreements(const Order::Pass& a, const Order::Pass& b, uint64_t n) {
  double same = 0;
  for (uint64_t i = 0; i < n; ++i) same += a(i) == b(i) ? 1 : 0;
  return same;
}

TEST(OrderTest, PassesAndSeedsAreUnrelated) {
  constexpr uint64_t kSize = 5000;
  double between_passes = 0;
  double between_seeds = 0;
  constexpr int kTrials = 200;
  for (uint64_t i = 0; i < kTrials; ++i) {
    const Order order(i, kSize);
    between_passes += agreements(order.pass(0), order.pass(1), kSize);
    between_seeds += agreements(order.pass(0), Order(i + 1, kSize).pass(0), kSize);
  }
  // Poisson with mean 1 each: the sum has deviation sqrt(kTrials) = 14.
  EXPECT_NEAR(between_passes, kTrials, 60);
  EXPECT_NEAR(between_seeds, kTrials, 60);
}

TEST(OrderTest, StreamGoesFromPassToPass) {
  const Order order(4, 10);
  for (uint64_t p = 0; p < 35; ++p) EXPECT_EQ(order.at_stream(p), order.at(p / 10, p % 10));
}

TEST(OrderTest, NeverChanges) {
  // Runs of earlier versions must repeat: these values are part of the format.
  const auto pass = Order(7, 60000).pass(2);
  const std::array<uint64_t, 4> large = {pass(0), pass(1), pass(2), pass(59999)};
  const Order small(7, 10);
  std::array<uint64_t, 10> few{};
  for (uint64_t i = 0; i < 10; ++i) few[i] = small.at(0, i);
  EXPECT_EQ(large, (std::array<uint64_t, 4>{20148, 23340, 8405, 15359}));
  EXPECT_EQ(few, (std::array<uint64_t, 10>{1, 7, 6, 5, 0, 9, 2, 3, 8, 4}));
}

}  // namespace
}  // namespace muster::data
