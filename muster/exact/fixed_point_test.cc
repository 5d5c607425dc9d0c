#include "muster/exact/fixed_point.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"

namespace muster::exact {
namespace {

bool overflows(uint8_t exponent, int s, int lanes) { return exponent > largest_exponent(s, lanes); }

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const int kLaneCounts[] = {1, 2, 3, 7, 8, 13, 64, 100, 1000, 4096, 65536};

float with_exponent(uint32_t byte, uint32_t mantissa, bool negative) {
  return std::bit_cast<float>((negative ? 0x80000000u : 0u) | byte << 23 | (mantissa & 0x7fffff));
}

// Magnitudes spread over `spread` binades below exponent byte `top`, with zeros, both signs, and
// subnormals where that reaches them.
std::vector<float> random_block(RandomStream& random, size_t n, int top, int spread) {
  std::vector<float> block(n);
  for (float& x : block) {
    const auto below = static_cast<int>(random.below(static_cast<uint64_t>(spread)));
    const uint32_t bits = random.next_u32();
    if (bits % 16 == 0) {
      x = bits % 32 == 0 ? 0.0f : -0.0f;
    } else {
      x = with_exponent(static_cast<uint32_t>(std::max(0, top - below)), random.next_u32(),
                        bits >> 31 != 0);
    }
  }
  return block;
}

// The definition, in arithmetic that has room for everything: a float times a power of two is exact
// in long double, and nearbyint rounds ties to even.
int64_t defined_q(float g, int s, int lanes) {
  const auto bound = static_cast<long double>(lane_bound(lanes));
  const long double x = std::ldexp(static_cast<long double>(g), s);
  if (!(x < bound)) return lane_bound(lanes);
  if (!(x > -bound)) return -lane_bound(lanes);
  return static_cast<int64_t>(std::nearbyint(x));
}
bool defined_fits(float g, int s, int lanes) {
  return std::isfinite(g) && std::abs(std::ldexp(static_cast<long double>(g), s)) <
                                 static_cast<long double>(lane_bound(lanes));
}
uint8_t defined_exponent(const std::vector<float>& block) {
  uint32_t largest = 0;
  for (const float x : block) largest = std::max(largest, std::bit_cast<uint32_t>(x) << 1 >> 24);
  return static_cast<uint8_t>(largest);
}

TEST(Scale, LaneBoundIsTheLargestPowerOfTwoThatCannotWrap) {
  for (int lanes = 1; lanes <= kMaxLanes; ++lanes) {
    ASSERT_LE(lane_bound(lanes) * lanes, int64_t{INT32_MAX}) << lanes;
    ASSERT_GT(2 * lane_bound(lanes) * lanes, int64_t{INT32_MAX}) << lanes;
  }
}

TEST(Scale, LeavesThreeBitsAndNotMore) {
  for (const int lanes : kLaneCounts) {
    for (int e = 0; e < 255; ++e) {
      const int s = scale_for(static_cast<uint8_t>(e), lanes);
      ASSERT_LE(std::abs(s), kMaxScale);
      const long double largest = with_exponent(static_cast<uint32_t>(e), 0x7fffff, false);
      const auto bound = static_cast<long double>(lane_bound(lanes));
      ASSERT_LT(std::ldexp(8 * largest, s), bound) << e << " " << lanes;
      if (s < kMaxScale) {
        ASSERT_GE(std::ldexp(8 * largest, s + 1), bound) << e << " " << lanes;
        ASSERT_EQ(largest_exponent(s, lanes), std::min(254, e + kSpareBits));
      } else {
        ASSERT_GE(largest_exponent(s, lanes), e + kSpareBits);
      }
    }
  }
}

TEST(Scale, LargestExponentIsExactlyWhatFits) {
  for (const int lanes : kLaneCounts) {
    for (int s = -kMaxScale; s <= kMaxScale; ++s) {
      const uint32_t e = largest_exponent(s, lanes);
      ASSERT_TRUE(defined_fits(with_exponent(e, 0x7fffff, false), s, lanes)) << s << " " << lanes;
      if (e < 254) {
        ASSERT_FALSE(defined_fits(with_exponent(e + 1, 0, false), s, lanes)) << s << " " << lanes;
      }
    }
  }
}

class EveryIsa : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(FixedPoint, EveryIsa, ::testing::ValuesIn(usable_isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

// Vector and scalar paths are held to the same definition, so they equal each other bit for bit.
// Sizes take in every remainder of a vector; the offset puts data off any alignment.
TEST_P(EveryIsa, StoreAndAddMatchTheDefinition) {
  RandomStream random(2, Purpose::kUser);
  std::vector<size_t> sizes(140);
  std::iota(sizes.begin(), sizes.end(), size_t{0});
  for (const size_t n : {500, 1000, 1023, 2047, 4095, 4096}) sizes.push_back(n);
  for (const size_t n : sizes) {
    for (int round = 0; round < 4; ++round) {
      const int lanes = kLaneCounts[random.below(std::size(kLaneCounts))];
      const auto top = static_cast<int>(random.below(255));
      const size_t offset = random.below(4);
      const std::vector<float> padded = random_block(random, n + offset, top, 1 + round * 20);
      const std::vector<float> block(padded.begin() + static_cast<ptrdiff_t>(offset), padded.end());
      const std::span<const float> g = std::span(padded).subspan(offset);
      // Mostly a scale that fits, sometimes one that is far off either way.
      const int s = round == 3 ? static_cast<int>(random.below(2 * kMaxScale + 1)) - kMaxScale
                               : scale_for(static_cast<uint8_t>(std::max(0, top - 3)), lanes);
      const bool overflow =
          !std::all_of(g.begin(), g.end(), [&](float x) { return defined_fits(x, s, lanes); });

      std::vector<int32_t> sum(n + 1, 12345);
      const uint8_t stored = store_block(g, s, lanes, sum.data(), GetParam());
      ASSERT_EQ(stored, defined_exponent(block));
      ASSERT_EQ(overflows(stored, s, lanes), overflow)
          << "s " << s << " top " << top << " lanes " << lanes;
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(sum[i], defined_q(g[i], s, lanes)) << g[i] << " s " << s << " lanes " << lanes;
      }
      if (lanes > 1) {
        const uint8_t added = add_block(g, s, lanes, sum.data(), GetParam());
        ASSERT_EQ(added, stored);
        ASSERT_EQ(overflows(added, s, lanes), overflow);
        for (size_t i = 0; i < n; ++i) ASSERT_EQ(sum[i], 2 * defined_q(g[i], s, lanes));
      }
      ASSERT_EQ(sum[n], 12345) << "wrote past the end";
      ASSERT_EQ(exponent_of(g, GetParam()), stored);
    }
  }
}

TEST_P(EveryIsa, TiesGoToEven) {
  const std::vector<float> g = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 0.49999997f, 8388607.5f};
  const std::vector<int32_t> expected = {0, 2, 2, 0, -2, -2, 0, 8388608};
  std::vector<int32_t> sum(g.size());
  EXPECT_FALSE(overflows(store_block(g, 0, 1, sum.data(), GetParam()), 0, 1));
  EXPECT_EQ(sum, expected);
}

TEST_P(EveryIsa, NotFiniteIsSeenWhereverItStands) {
  const std::vector<float> bad = {kInfinity,
                                  -kInfinity,
                                  kNan,
                                  -kNan,
                                  std::bit_cast<float>(0x7f800001u),   // a signalling NaN
                                  std::bit_cast<float>(0xffffffffu)};  // the largest payload
  for (const size_t n : {1, 7, 8, 16, 33, 4096}) {
    for (const size_t at : {size_t{0}, n / 2, n - 1}) {
      for (const float x : bad) {
        std::vector<float> g(n, -1.5f);
        g[at] = x;
        std::vector<int32_t> sum(n, 0);
        const uint8_t stored = store_block(g, 3, 8, sum.data(), GetParam());
        ASSERT_EQ(stored, kNotFinite);
        ASSERT_TRUE(overflows(stored, 3, 8));
        const uint8_t added = add_block(g, -kMaxScale, 8, sum.data(), GetParam());
        ASSERT_EQ(added, kNotFinite);
        ASSERT_TRUE(overflows(added, -kMaxScale, 8));
        ASSERT_EQ(exponent_of(g, GetParam()), kNotFinite);
      }
    }
  }
}

TEST_P(EveryIsa, OverflowExactlyAtTheBound) {
  for (const int lanes : kLaneCounts) {
    for (int s = -90; s <= kMaxScale; s += 3) {
      const float limit = std::ldexp(1.0f, lane_bits(lanes) - s);  // the smallest that does not fit
      int32_t q = 0;
      for (const float sign : {1.0f, -1.0f}) {
        const float below = sign * std::nextafter(limit, 0.0f);
        const float at = sign * limit;
        ASSERT_FALSE(overflows(store_block({&below, 1}, s, lanes, &q, GetParam()), s, lanes)) << s;
        ASSERT_TRUE(overflows(store_block({&at, 1}, s, lanes, &q, GetParam()), s, lanes)) << s;
        ASSERT_EQ(q, sign * static_cast<float>(lane_bound(lanes)));  // clamped
      }
    }
  }
}

// The worst case: every lane at its bound with the same sign, or far beyond it.
TEST_P(EveryIsa, NoSumWraps) {
  for (const int lanes : kLaneCounts) {
    const int s = scale_for(127, lanes);
    const float most = std::nextafter(std::ldexp(1.0f, lane_bits(lanes) - s), 0.0f);
    for (const float g : {most, -most, FLT_MAX, -FLT_MAX, kInfinity, -kInfinity, kNan}) {
      int32_t sum = 0;
      store_block({&g, 1}, s, lanes, &sum, GetParam());
      int64_t expected = sum;
      for (int lane = 1; lane < lanes; ++lane) {
        expected += defined_q(g, s, lanes);
        add_block({&g, 1}, s, lanes, &sum, GetParam());
        ASSERT_EQ(sum, expected) << "lane " << lane << " of " << lanes << ", g " << g;
      }
    }
  }
}

TEST_P(EveryIsa, ToFloatRoundsOnce) {
  RandomStream random(3, Purpose::kUser);
  for (int s = -kMaxScale; s <= kMaxScale; ++s) {
    std::vector<int32_t> sum(203);
    for (int32_t& x : sum) x = static_cast<int32_t>(random.next_u32()) >> random.below(32);
    sum[0] = INT32_MAX;
    sum[1] = -INT32_MAX;
    sum[2] = 0;
    sum[3] = 1;
    std::vector<float> out(sum.size());
    to_float(sum, s, out.data(), GetParam());
    for (size_t i = 0; i < sum.size(); ++i) {
      // Exact in double; the cast is the one rounding.
      const double exact = std::ldexp(static_cast<double>(sum[i]), -s);
      ASSERT_EQ(out[i], exact > FLT_MAX    ? kInfinity
                        : exact < -FLT_MAX ? -kInfinity
                                           : static_cast<float>(exact))
          << sum[i] << " " << s;
    }
  }
}

// Lanes in any order, gathered in any grouping: on one thread, on several workers each with its own
// partial sum, summed by a ring or a tree.
TEST(Sum, AnyOrderAndGroupingGivesTheSameBits) {
  RandomStream random(4, Purpose::kUser);
  const std::vector<Isa> isas = usable_isas();
  for (int round = 0; round < 60; ++round) {
    const int lanes = 1 + static_cast<int>(random.below(40));
    const size_t n = 1 + random.below(300);
    const int top = 4 + static_cast<int>(random.below(250));
    std::vector<std::vector<float>> g;
    for (int lane = 0; lane < lanes; ++lane) g.push_back(random_block(random, n, top, 30));
    const int s = scale_for(static_cast<uint8_t>(top), lanes);

    std::vector<int32_t> expected(n);
    store_block(g[0], s, lanes, expected.data());
    for (int lane = 1; lane < lanes; ++lane) {
      add_block(g[static_cast<size_t>(lane)], s, lanes, expected.data());
    }
    for (int attempt = 0; attempt < 5; ++attempt) {
      std::vector<size_t> order(static_cast<size_t>(lanes));
      std::iota(order.begin(), order.end(), size_t{0});
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
      // Each worker sums its lanes; each may have another processor.
      std::vector<std::vector<int32_t>> partial;
      for (size_t next = 0; next < order.size();) {
        const size_t count = 1 + random.below(order.size() - next);
        const Isa isa = isas[random.below(isas.size())];
        partial.emplace_back(n);
        store_block(g[order[next]], s, lanes, partial.back().data(), isa);
        for (size_t i = 1; i < count; ++i) {
          add_block(g[order[next + i]], s, lanes, partial.back().data(), isa);
        }
        next += count;
      }
      while (partial.size() > 1) {
        std::swap(partial[random.below(partial.size())], partial.back());
        const std::vector<int32_t> last = std::move(partial.back());
        partial.pop_back();
        std::vector<int32_t>& other = partial[random.below(partial.size())];
        for (size_t i = 0; i < n; ++i) other[i] += last[i];  // signed: UBSan sees a wrap
      }
      ASSERT_EQ(partial[0], expected) << "lanes " << lanes << " n " << n;
    }
  }
}

// Inequalities (1) and (2) of fixed_point.h, against sums in long double (64 bits of mantissa).
TEST(Sum, ErrorIsBelowTheStatedBound) {
  RandomStream random(5, Purpose::kUser);
  double nearest = 0;
  for (int round = 0; round < 200; ++round) {
    const int lanes = kLaneCounts[random.below(8)];
    const size_t n = 1 + random.below(64);
    const auto top = static_cast<int>(random.below(255));
    const int spread = 1 + static_cast<int>(random.below(20));
    std::vector<int32_t> sum(n, 0);
    std::vector<long double> exact(n, 0);
    std::vector<std::vector<float>> g;
    uint8_t e = 0;
    float largest = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      g.push_back(random_block(random, n, top, spread));
      e = std::max(e, exponent_of(g.back()));
      for (const float x : g.back()) largest = std::max(largest, std::abs(x));
    }
    const int s = scale_for(e, lanes);
    for (const auto& lane : g) {
      ASSERT_FALSE(overflows(add_block(lane, s, lanes, sum.data()), s, lanes));
      for (size_t i = 0; i < n; ++i) exact[i] += static_cast<long double>(lane[i]);
    }
    std::vector<float> out(n);
    to_float(sum, s, out.data());
    const long double bound = std::ldexp(lanes / 2.0L, -s);
    for (size_t i = 0; i < n; ++i) {
      const long double value = std::ldexp(static_cast<long double>(sum[i]), -s);
      const long double error = std::abs(value - exact[i]);
      ASSERT_LE(error, bound) << "lanes " << lanes << " s " << s;
      nearest = std::max(nearest, static_cast<double>(error / bound));
      if (s < kMaxScale) {
        const long double relative = std::pow(2.0L, -26.9999L) * lanes * lanes;
        ASSERT_LE(error, relative * static_cast<long double>(largest)) << lanes;
      } else {
        ASSERT_LE(error, std::ldexp(static_cast<long double>(lanes), -127));
      }
      if (std::isfinite(out[i])) {
        ASSERT_LE(std::abs(static_cast<long double>(out[i]) - value),
                  std::ldexp(std::abs(value), -24));
      }
    }
  }
  EXPECT_GT(nearest, 0.5) << "the bound is so loose that this test could not fail";
}

// What stochastic rounding may give: x truncated, or one more away from zero.
TEST_P(EveryIsa, StochasticRoundsToOneOfTheNeighbours) {
  RandomStream random(7, Purpose::kUser);
  for (const int lanes : kLaneCounts) {
    for (const int s : {-kMaxScale, -3, 0, 20, 90, kMaxScale}) {
      const int top = 127 + lane_bits(lanes) - s;  // to beyond what fits
      if (top < 5 || top > 254) continue;
      const auto g = random_block(random, 301, top, 50);
      Stochastic rounding(1, 17, 3);
      rounding.first = random.next_u64();
      std::vector<int32_t> sum(g.size());
      const uint8_t added = store_block(g, s, lanes, rounding, sum.data(), GetParam());
      EXPECT_EQ(added, defined_exponent(g));
      for (size_t i = 0; i < g.size(); ++i) {
        if (!defined_fits(g[i], s, lanes)) {
          ASSERT_EQ(sum[i], defined_q(g[i], s, lanes));  // clamped
          continue;
        }
        const long double x = std::ldexp(static_cast<long double>(g[i]), s);
        const long double error = std::abs(static_cast<long double>(sum[i]) - x);
        ASSERT_LT(error, 1) << g[i] << " " << s;
        ASSERT_TRUE(error == 0 || x != std::trunc(x)) << g[i] << " " << s;
        ASSERT_LE(std::abs(int64_t{sum[i]}), lane_bound(lanes));
      }
      // A further lane adds the same again, and every instruction set gives the same.
      add_block(g, s, lanes, rounding, sum.data(), GetParam());
      std::vector<int32_t> once(g.size());
      store_block(g, s, lanes, rounding, once.data(), Isa::kBaseline);
      for (size_t i = 0; i < g.size(); ++i) {
        ASSERT_EQ(static_cast<uint32_t>(sum[i]), 2 * static_cast<uint32_t>(once[i]));
      }
    }
  }
}

// The reason for it: elements far below half a unit in every lane.
TEST(StochasticRounding, KeepsTheMeanOfWhatIsBelowTheUnit) {
  const int lanes = 4096;
  const std::vector<float> values = {0.5f, 0.25f, 0.01f, 0x1p-10f, 3.3f, -0.3f, -0x1p-9f, -7.75f};
  constexpr size_t kCopies = 1 << 12;  // of each: elements with numbers of their own
  for (size_t v = 0; v < values.size(); ++v) {
    const std::vector<float> g(kCopies, values[v]);
    std::vector<int32_t> nearest(kCopies, 0);
    std::vector<int32_t> random(kCopies, 0);
    for (int lane = 0; lane < lanes; ++lane) {
      Stochastic rounding(5, 100, lane);
      rounding.first = v * kCopies;
      add_block(g, 0, lanes, nearest.data());
      add_block(g, 0, lanes, rounding, random.data());
    }
    const double exact = double{values[v]} * lanes;
    const double rest = std::abs(double{values[v]} - std::trunc(double{values[v]}));
    const double deviation = std::sqrt(lanes * rest * (1 - rest));
    double mean = 0;
    double square = 0;
    for (const int32_t sum : random) {
      mean += (sum - exact) / kCopies;
      square += (sum - exact) * (sum - exact) / kCopies;
    }
    // The sum over lanes is unbiased, and its error is that of independent draws.
    EXPECT_LT(std::abs(mean), 5 * deviation / std::sqrt(double{kCopies})) << values[v];
    EXPECT_NEAR(std::sqrt(square) / deviation, 1, 0.06) << values[v];
    if (std::abs(values[v]) < 0.5f) {
      EXPECT_EQ(nearest[0], 0);
    }
  }
}

// Elements, lanes and steps do not follow each other: their draws agree as often as chance has it.
TEST(StochasticRounding, DrawsAreUnrelated) {
  constexpr size_t kCount = 1 << 16;
  const auto draws = [](uint64_t seed, int64_t step, int lane, uint64_t first) {
    const std::vector<float> halves(kCount, 0.5f);
    std::vector<int32_t> drawn(kCount);
    Stochastic rounding(seed, step, lane);
    rounding.first = first;
    store_block(halves, 0, 8, rounding, drawn.data());
    return drawn;
  };
  const auto agree = [](const std::vector<int32_t>& a, const std::vector<int32_t>& b,
                        size_t shift) {
    int64_t equal = 0;
    for (size_t i = 0; i + shift < kCount; ++i) equal += a[i + shift] == b[i] ? 1 : 0;
    return static_cast<double>(equal) / static_cast<double>(kCount - shift);
  };
  constexpr double kTolerance = 5 * 0.5 / 256;  // five deviations
  const auto reference = draws(1, 10, 0, 0);
  for (const size_t shift : {1, 2, 3, 4, 8, 16, 64, 4096}) {
    EXPECT_NEAR(agree(reference, reference, shift), 0.5, kTolerance) << shift;
  }
  for (int i = 1; i <= 40; ++i) {
    const auto other_seed = uint64_t{1} + static_cast<uint64_t>(i);
    EXPECT_NEAR(agree(reference, draws(1, 10, i, 0), 0), 0.5, kTolerance) << "lane " << i;
    EXPECT_NEAR(agree(reference, draws(1, 10 + i, 0, 0), 0), 0.5, kTolerance) << "step " << i;
    EXPECT_NEAR(agree(reference, draws(other_seed, 10, 0, 0), 0), 0.5, kTolerance) << "seed " << i;
  }
  EXPECT_NEAR(agree(reference, draws(1, 10, 0, uint64_t{1} << 32), 0), 0.5, kTolerance);
  EXPECT_EQ(draws(1, 10, 0, 0), reference);
  // By its place, not by the block it comes in.
  EXPECT_EQ(draws(1, 10, 0, 1000)[0], reference[1000]);
}

TEST(Exponents, FollowGrowthAtOnceAndDeclineByOneBit) {
  const int lanes = 8;
  for (const int64_t step : {0, 1, kFallEvery - 1, kFallEvery, 7 * kFallEvery}) {
    const int fall = step % kFallEvery == 0 ? 1 : 0;
    EXPECT_EQ(next_exponent(120, 123, step, lanes), 123);
    EXPECT_EQ(next_exponent(120, 120, step, lanes), 120);
    EXPECT_EQ(next_exponent(120, 110, step, lanes), 120 - fall);
    EXPECT_EQ(next_exponent(1, 1, step, lanes), 1);
    EXPECT_EQ(next_exponent(0, 77, step, lanes), 77);
    EXPECT_EQ(next_exponent(120, kNothing, step, lanes), 120);
    EXPECT_EQ(next_exponent(120, kNotFinite, step, lanes), 120);
  }
  EXPECT_EQ(redo_exponent(120, 130), 130);
  EXPECT_EQ(redo_exponent(120, 60), 120);
}

TEST(FewBits, ALaneAddsAtMostWhatItsBitsHold) {
  for (const int bits : {16, 8, 4, 2}) {
    for (const int lanes : {1, 8, 65536}) {
      const SumFormat format(lanes, bits);
      const int64_t bound = lane_bound(format);
      EXPECT_EQ(bound, (1 << (bits - 1)) - 1);
      EXPECT_LE(bound * lanes, int64_t{INT32_MAX});
      for (const int e : {30, 127, 200, 253}) {
        const int s = scale_for(static_cast<uint8_t>(e), format);
        // The largest with this exponent scales to just below 2^(bits - 1).
        const float largest = std::nextafter(std::ldexp(1.0f, e - 126), 0.0f);
        const std::vector<float> g = {largest, -largest, 0, largest / 2, 64 * largest};
        std::vector<int32_t> q(g.size());
        const uint8_t seen =
            store_block(std::span(g).first(4), s, format, Stochastic(1, 2, 3), q.data());
        EXPECT_EQ(seen, e);
        EXPECT_EQ(q[0], bound);
        EXPECT_EQ(q[1], -bound);
        EXPECT_EQ(q[2], 0);
        EXPECT_LE(q[3], bound);
        EXPECT_TRUE(fits(static_cast<uint8_t>(e), seen, format));
        EXPECT_FALSE(fits(static_cast<uint8_t>(e), static_cast<uint8_t>(e + 1), format));
        EXPECT_FALSE(fits(static_cast<uint8_t>(e), kNotFinite, format));
        // What does not fit is clamped all the same.
        store_block(g, s, format, Stochastic(1, 2, 3), q.data());
        EXPECT_EQ(q[4], bound);
      }
    }
  }
}

// One spike, and the scale is back in the next step but one, whatever the number of lanes.
TEST(Exponents, ASpikeIsForgottenInOneStep) {
  for (const int lanes : kLaneCounts) {
    const int full = lane_bits(lanes) - kSpareBits;
    uint8_t used = 110;
    EXPECT_EQ(bits_above_unit(used, 110, lanes), full);
    used = redo_exponent(used, 140);  // 2^30 times as large
    EXPECT_EQ(bits_above_unit(used, 140, lanes), full);
    used = next_exponent(used, 140, 1, lanes);
    EXPECT_EQ(bits_above_unit(used, 110, lanes), std::max(0, full - 30));
    EXPECT_TRUE(is_coarse(used, 110, lanes));
    used = next_exponent(used, 110, 2, lanes, true);
    EXPECT_EQ(bits_above_unit(used, 110, lanes), std::min(full - kLeastExcess, kLeastBits));
    for (int step = 3; step < 20 * kFallEvery; ++step) {
      used = next_exponent(used, 110, step, lanes);
    }
    EXPECT_EQ(bits_above_unit(used, 110, lanes), full);
  }
}

// One batch of which the model is certain, and then an ordinary one again: no step is redone.
TEST(Exponents, ATinyGradientDoesNotTakeTheScaleAlong) {
  for (const int lanes : kLaneCounts) {
    uint8_t used = 110;
    for (int step = 1; step <= kSpareBits * kFallCoarse; ++step) {
      used = next_exponent(used, 40, step, lanes);
      EXPECT_TRUE(fits(used, 110, lanes)) << step;
    }
    for (int step = 0; step < 80 * kFallCoarse; ++step) used = next_exponent(used, 40, step, lanes);
    EXPECT_LE(used, 40 + most_excess(lanes)) << "but one that stays small does";
  }
}

// The number of bits is that of the largest integer that the block's sum may get from a lane.
TEST(Exponents, BitsAboveTheUnitAreThoseOfTheLargestInteger) {
  for (const int lanes : {1, 8, 4096}) {
    for (int seen = 1; seen < 255; ++seen) {
      for (int used = std::max(0, seen - kSpareBits); used < std::min(255, seen + 40); used += 7) {
        const float g = with_exponent(static_cast<uint32_t>(seen), 0, false);
        int32_t sum = 0;
        store_block({&g, 1}, scale_for(static_cast<uint8_t>(used), lanes), lanes, &sum);
        const int bits =
            bits_above_unit(static_cast<uint8_t>(used), static_cast<uint8_t>(seen), lanes);
        // 2^(bits - 1), which rint makes 0 when it is a half.
        ASSERT_EQ(sum, bits == 0 ? 0 : 1 << (bits - 1)) << seen << " " << used;
      }
    }
  }
}

TEST(Exponents, BlocksNeverSeenBorrowFromTheirTensorThenFromTheModel) {
  const std::vector<size_t> sizes = {3 * kBlockSize, 10, 0, kBlockSize + 1};
  const BlockLayout layout(sizes);
  const std::vector<uint8_t> seen = {0, 110, 105, 0, 120, 0};
  EXPECT_EQ(first_exponents(layout, seen), (std::vector<uint8_t>{110, 110, 105, 120, 120, 120}));
  EXPECT_EQ(first_exponents(layout, std::vector<uint8_t>(6, 0)), std::vector<uint8_t>(6, 0));
}

// A life of a block: gradients that wander, spike, vanish and come back. A redone step always fits.
TEST(Exponents, ARedoneStepAlwaysFits) {
  RandomStream random(6, Purpose::kUser);
  int redone = 0;
  const int lanes = 8;
  double exponent = 110;
  uint8_t used = 110;
  for (int step = 0; step < 5000; ++step) {
    exponent = std::clamp(exponent + random.normal(), 1.0, 250.0);
    const bool zero = random.below(10) == 0;
    const bool spike = random.below(100) == 0;
    const int top = zero ? 0 : std::min(254, static_cast<int>(exponent) + (spike ? 20 : 0));
    const std::vector<float> g = {
        zero ? 0.0f : with_exponent(static_cast<uint32_t>(top), 0x7fffff, step % 2 == 0)};
    int32_t sum = 0;
    uint8_t added = store_block(g, scale_for(used, lanes), lanes, &sum);
    if (overflows(added, scale_for(used, lanes), lanes)) {
      ++redone;
      used = redo_exponent(used, added);
      added = store_block(g, scale_for(used, lanes), lanes, &sum);
      ASSERT_FALSE(overflows(added, scale_for(used, lanes), lanes)) << "step " << step;
    }
    used = next_exponent(used, added, step, lanes);
  }
  EXPECT_GT(redone, 10) << "nothing was tested";
  EXPECT_LT(redone, 150);
}

}  // namespace
}  // namespace muster::exact
