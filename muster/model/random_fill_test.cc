#include "muster/model/random_fill.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "muster/model/random_words.h"

namespace muster::model {
namespace {

RandomStream stream(uint64_t number = 0) { return {7, Purpose::kDropout, number, 0}; }

// The word of an element by the definition in random_words.h, one block at a time.
uint32_t word_of(const RandomStream& stream, size_t element) {
  const size_t group = element / 64;
  const size_t e = element % 64;
  return stream.block(16 * group + e % 32 / 2)[2 * (e / 32) + e % 2];
}

std::vector<bool> mask_of(const RandomStream& stream, double p, size_t size) {
  const std::vector<float> ones(size, 1);
  std::vector<float> out(size);
  apply_dropout(stream, p, ones, out);
  std::vector<bool> kept(size);
  for (size_t i = 0; i < size; ++i) kept[i] = out[i] != 0;
  return kept;
}

TEST(RandomWords, EveryInstructionSetFollowsTheDefinition) {
  constexpr size_t kGroups = 5;
  for (const Isa isa : usable_isas()) {
    // The second start is where the block number no longer fits into 32 bits.
    for (const uint64_t first : {uint64_t{0}, (uint64_t{1} << 28) - 2}) {
      std::vector<uint32_t> words(kGroups * kRandomGroup);
      random_words(isa, stream().key(), first, kGroups, words.data());
      for (size_t i = 0; i < words.size(); ++i) {
        ASSERT_EQ(words[i], word_of(stream(), first * kRandomGroup + i))
            << isa_name(isa) << ", element " << i << " from group " << first;
      }
    }
  }
}

TEST(RandomFill, UniformCoversItsRangeEvenly) {
  std::vector<float> values(100'000);
  fill_uniform(stream(), -2, 6, values);
  const auto [low, high] = std::ranges::minmax(values);
  EXPECT_GE(low, -2);
  EXPECT_LT(high, 6);
  std::vector<int> counts(8);
  for (const float value : values) ++counts[static_cast<size_t>(value + 2)];
  // Standard deviation of a count: 105.
  for (const int count : counts) EXPECT_NEAR(count, 12'500, 500);
}

TEST(RandomFill, NormalHasTheMomentsOfANormal) {
  std::vector<float> values(200'000);
  fill_normal(stream(), 3, 2, values);
  double mean = 0;
  for (const float value : values) mean += value;
  mean /= static_cast<double>(values.size());
  double square = 0;
  double fourth = 0;
  for (const float value : values) {
    const double d = (value - mean) / 2;
    square += d * d;
    fourth += d * d * d * d;
  }
  EXPECT_NEAR(mean, 3, 0.02);
  EXPECT_NEAR(square / static_cast<double>(values.size()), 1, 0.02);
  EXPECT_NEAR(fourth / static_cast<double>(values.size()), 3, 0.15);
}

TEST(RandomFill, APartOfATensorGetsTheNumbersOfThatPart) {
  std::vector<float> whole(5000);
  fill_normal(stream(), 0, 1, whole);
  for (const size_t size : {1, 63, 64, 65, 1023, 1025, 4999}) {
    std::vector<float> part(size);
    fill_normal(stream(), 0, 1, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin())) << size;
  }
}

TEST(ApplyDropout, KeepsTheRightShareAndScalesIt) {
  constexpr size_t kSize = 100'001;
  for (const double p : {0.1, 0.5, 0.9}) {
    std::vector<float> in(kSize);
    std::iota(in.begin(), in.end(), 1.0F);
    std::vector<float> out(kSize);
    apply_dropout(stream(), p, in, out);
    const auto scale = static_cast<float>(1 / (1 - p));
    size_t kept = 0;
    for (size_t i = 0; i < kSize; ++i) {
      if (out[i] == 0) continue;
      ASSERT_EQ(out[i], in[i] * scale);
      ++kept;
    }
    const double deviation = std::sqrt(p * (1 - p) * kSize);
    EXPECT_NEAR(static_cast<double>(kept), (1 - p) * kSize, 4 * deviation);
  }
}

TEST(ApplyDropout, ZeroKeepsEverythingAndInPlaceIsTheSame) {
  std::vector<float> values(777, 1.5F);
  apply_dropout(stream(), 0, values, values);
  EXPECT_EQ(std::ranges::count(values, 1.5F), 777);
  std::vector<float> out(777);
  apply_dropout(stream(), 0.3, values, out);
  apply_dropout(stream(), 0.3, values, values);
  EXPECT_EQ(values, out);
}

TEST(ApplyDropout, StreamsAndNeighboursAreUnrelated) {
  constexpr size_t kSize = 1 << 16;
  const auto a = mask_of(stream(0), 0.5, kSize);
  const auto b = mask_of(stream(1), 0.5, kSize);
  size_t same = 0;
  for (size_t i = 0; i < kSize; ++i) same += a[i] == b[i] ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(same), kSize / 2.0, 4 * 128);
  // Elements of one block, of one register, of one group, of neighbouring groups.
  for (const size_t distance : {1, 2, 16, 32, 64, 1024}) {
    size_t equal = 0;
    for (size_t i = distance; i < kSize; ++i) equal += a[i] == a[i - distance] ? 1 : 0;
    EXPECT_NEAR(static_cast<double>(equal), (kSize - distance) / 2.0, 4 * 128) << distance;
  }
}

TEST(ApplyDropout, Bfloat16HasTheMaskOfFloatAndRoundsToNearestEven) {
  constexpr size_t kSize = 3000;
  std::vector<uint16_t> in(kSize);
  for (size_t i = 0; i < kSize; ++i) in[i] = static_cast<uint16_t>(0x3F80 + i % 128);  // [1, 2)
  std::vector<uint16_t> out(kSize);
  apply_dropout(stream(), 0.25, in, out);
  const auto kept = mask_of(stream(), 0.25, kSize);
  for (size_t i = 0; i < kSize; ++i) {
    const float value = std::bit_cast<float>(uint32_t{in[i]} << 16);
    const float wanted = kept[i] ? value * static_cast<float>(1 / 0.75) : 0;
    const float got = std::bit_cast<float>(uint32_t{out[i]} << 16);
    // Half a unit in the last of 8 bits.
    ASSERT_LE(std::abs(got - wanted), wanted * 0x1p-8F) << i;
  }
  // Not finite stays not finite, where it is kept.
  std::vector<uint16_t> odd(64, 0x7F81);  // NaN
  apply_dropout(stream(), 0, odd, odd);
  EXPECT_EQ(std::ranges::count(odd, 0x7FC0), 64);
}

}  // namespace
}  // namespace muster::model
