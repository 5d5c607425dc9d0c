#include "muster/train/step/gradient_sum.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"
#include "muster/exact/fixed_point.h"

namespace muster::train {
namespace {

using Mode = GradientSum::Mode;

const std::vector<size_t> kSizes = {10, 9000, 1, 4096, 5000};
constexpr int kLanes = 6;
constexpr std::array kAll = {0, 1, 2, 3, 4, 5};

std::vector<float> gradient(int lane, size_t tensor) {
  RandomStream random(1, Purpose::kUser, static_cast<uint64_t>(lane), tensor);
  std::vector<float> values(kSizes[tensor]);
  for (auto& v : values) v = random.normal();
  return values;
}

bool overflowed(const GradientSum& sum, std::span<const uint8_t> exponents) {
  for (size_t b = 0; b < exponents.size(); ++b) {
    if (!exact::fits(exponents[b], sum.seen()[b], sum.format(b))) return true;
  }
  return false;
}

// Sums all lanes, in the order given, on as many threads as there are groups.
std::vector<float> sum(GradientSum& target, const exact::BlockLayout& layout, Mode mode,
                       const std::vector<std::vector<int>>& groups, int64_t step = 0) {
  std::vector<uint8_t> exponents(layout.blocks().size(), 129);
  target.begin(mode, exponents, kAll, step);
  std::vector<std::thread> threads;
  for (const auto& group : groups) {
    threads.emplace_back([&target, group] {
      for (const int lane : group) {
        for (size_t t = kSizes.size(); t-- > 0;) target.add(lane, t, gradient(lane, t).data());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  target.flush();
  EXPECT_FALSE(overflowed(target, exponents));
  std::vector<float> all;
  std::vector<float> scratch(exact::kBlockSize);
  for (size_t b = 0; b < layout.blocks().size(); ++b) {
    const auto values = target.read(b, scratch);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST(GradientSum, IsTheSameForAnyThreadsOrderAndBuckets) {
  const exact::BlockLayout layout(kSizes);
  GradientSum reference(layout, kLanes, 1 << 20);
  const auto expected = sum(reference, layout, Mode::kExact, {{0, 1, 2, 3, 4, 5}});
  for (const size_t bucket : {size_t{1}, size_t{20000}, size_t{1} << 30}) {
    GradientSum other(layout, kLanes, bucket);
    EXPECT_EQ(sum(other, layout, Mode::kExact, {{5, 3, 1}, {0, 2, 4}}), expected);
    EXPECT_EQ(sum(other, layout, Mode::kExact, {{0}, {1}, {2}, {3}, {4}, {5}}), expected);
  }
}

// Also with few bits, rotated or not; and the sum of many steps comes near the true one, as the
// errors of a step have the mean 0.
TEST(GradientSum, FewBitsAreTheSameForAnyOrderAndRightOnAverage) {
  const exact::BlockLayout layout(kSizes);
  GradientSum exact_sum(layout, kLanes, 1 << 20);
  const auto truth = sum(exact_sum, layout, Mode::kExact, {{0, 1, 2, 3, 4, 5}});
  for (const bool rotated : {false, true}) {
    for (const int bits : {16, 8, 4, 2}) {
      const GradientSum::Rounding rounding = {
          .stochastic = true, .seed = 3, .bits = bits, .rotated = rotated};
      GradientSum reference(layout, kLanes, 1 << 20, 4);
      reference.set_rounding(rounding);
      GradientSum other(layout, kLanes, 20000, 4);
      other.set_rounding(rounding);
      std::vector<double> mean(truth.size(), 0);
      constexpr int kSteps = 50;
      for (int step = 0; step < kSteps; ++step) {
        const auto one = sum(reference, layout, Mode::kExact, {{0, 1, 2, 3, 4, 5}}, step);
        ASSERT_EQ(sum(other, layout, Mode::kExact, {{5, 3, 1}, {0, 2, 4}}, step), one);
        for (size_t i = 0; i < one.size(); ++i) mean[i] += one[i] / kSteps;
      }
      const double unit = std::ldexp(1.0, 3 - (bits - 1));  // gradients are below 8
      double square = 0;
      for (size_t i = 0; i < mean.size(); ++i) {
        // The last tensor is late: it has all bits.
        ASSERT_NEAR(mean[i], truth[i], i < mean.size() - kSizes.back() ? 3 * unit : 1e-5);
        square += (mean[i] - truth[i]) * (mean[i] - truth[i]);
      }
      const double deviation = std::sqrt(square / static_cast<double>(mean.size()));
      EXPECT_LT(deviation, unit / 2 * std::sqrt(double{kLanes} / kSteps) * 1.1) << bits;
      EXPECT_GT(deviation, unit / 30 * std::sqrt(double{kLanes} / kSteps)) << bits;
    }
  }
}

TEST(GradientSum, NativeDependsOnTheOrder) {
  const exact::BlockLayout layout(kSizes);
  GradientSum target(layout, kLanes, 1 << 20);
  EXPECT_NE(sum(target, layout, Mode::kNative, {{0, 1, 2, 3, 4, 5}}),
            sum(target, layout, Mode::kNative, {{5, 4, 3, 2, 1, 0}}));
}

TEST(GradientSum, ExactIsNearTheTrueSum) {
  const exact::BlockLayout layout(kSizes);
  GradientSum target(layout, kLanes, 1 << 20);
  const auto result = sum(target, layout, Mode::kExact, {{0, 1, 2, 3, 4, 5}});
  size_t at = 0;
  for (size_t t = 0; t < kSizes.size(); ++t) {
    std::vector<double> expected(kSizes[t], 0);
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto g = gradient(lane, t);
      for (size_t i = 0; i < g.size(); ++i) expected[i] += g[i];
    }
    for (const double e : expected) ASSERT_NEAR(result[at++], e, 1e-5);
  }
}

TEST(GradientSum, ATensorNobodyAddsToIsZeroAlsoAfterAStepThatUsedIt) {
  const exact::BlockLayout layout(kSizes);
  GradientSum target(layout, kLanes, 1 << 20);
  (void)sum(target, layout, Mode::kExact, {{0, 1, 2, 3, 4, 5}});
  std::vector<uint8_t> exponents(layout.blocks().size(), 129);
  target.begin(Mode::kExact, exponents, kAll);
  target.add(0, 0, gradient(0, 0).data());
  target.flush();
  std::vector<float> scratch(exact::kBlockSize);
  for (size_t b = layout.first_block(1); b < layout.blocks().size(); ++b) {
    for (const float v : target.read(b, scratch)) ASSERT_EQ(v, 0);
  }
}

TEST(GradientSum, OverflowIsNoticedAndTheExponentsSeenFit) {
  const exact::BlockLayout layout(kSizes);
  GradientSum target(layout, kLanes, 1 << 20);
  std::vector<uint8_t> exponents(layout.blocks().size(), 100);  // far too small for values near 1
  for (const bool redone : {false, true}) {
    target.begin(Mode::kExact, exponents, kAll);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (size_t t = 0; t < kSizes.size(); ++t) target.add(lane, t, gradient(lane, t).data());
    }
    target.flush();
    EXPECT_EQ(overflowed(target, exponents), !redone);
    std::copy(target.seen().begin(), target.seen().end(), exponents.begin());
  }
}

TEST(GradientSum, NamesTheFirstTensorOfALaneThatIsNotFinite) {
  const exact::BlockLayout layout(kSizes);
  for (const Mode mode : {Mode::kExact, Mode::kNative, Mode::kDry}) {
    GradientSum target(layout, kLanes, 1 << 20);
    std::vector<uint8_t> exponents(layout.blocks().size(), 129);
    target.begin(mode, exponents, kAll);
    for (int lane = kLanes; lane-- > 0;) {
      for (size_t t = kSizes.size(); t-- > 0;) {
        auto g = gradient(lane, t);
        if ((lane == 4 || lane == 2) && t <= 3) g.back() = std::numeric_limits<float>::infinity();
        target.add(lane, t, g.data());
      }
    }
    target.flush();
    for (int lane = 0; lane < kLanes; ++lane) {
      EXPECT_EQ(target.not_finite(lane), lane == 4 || lane == 2 ? 3 : -1);
    }
  }
}

TEST(GradientSum, BucketsCompleteInTheOrderOfBackwardAndLateTensorsLast) {
  const exact::BlockLayout layout(kSizes);
  GradientSum target(layout, kLanes, 1, 4);  // a bucket for each block; the last tensor is late
  const size_t late = layout.first_block(4);
  std::vector<size_t> expected;
  for (size_t b = late; b-- > 0;) expected.push_back(b);
  for (size_t b = late; b < layout.blocks().size(); ++b) expected.push_back(b);
  EXPECT_TRUE(std::ranges::equal(target.exchange_order(), expected));

  std::vector<uint8_t> exponents(layout.blocks().size(), 129);
  target.begin(Mode::kExact, exponents, std::array{0, 1});
  std::atomic<size_t> done{0};
  std::thread exchange([&] {
    for (const size_t bucket : target.exchange_order()) {
      EXPECT_TRUE(target.wait_complete(bucket));
      EXPECT_EQ(target.int_bucket(bucket).size(), layout.blocks()[bucket].size);
      ++done;
    }
  });
  for (const int lane : {0, 5}) {
    EXPECT_EQ(done, 0U) << "a bucket that lacks a lane is not complete";
    for (size_t t = 4; t-- > 0;) target.add(lane, t, gradient(lane, t).data());
  }
  target.flush();  // nobody adds to the last tensor
  exchange.join();
  for (const int32_t v : target.int_bucket(late)) EXPECT_EQ(v, 0);

  target.begin(Mode::kExact, exponents, std::array{0, 1});
  std::thread waiting([&] { EXPECT_FALSE(target.wait_complete(0)); });
  target.abandon();
  waiting.join();
}

}  // namespace
}  // namespace muster::train
