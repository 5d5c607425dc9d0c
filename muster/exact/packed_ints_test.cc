#include "muster/exact/packed_ints.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"

namespace muster::exact {
namespace {

// Of the width, in two's complement: the extremes too.
std::vector<int32_t> some_values(size_t n, int width, uint64_t seed) {
  RandomStream random(seed, Purpose::kUser);
  std::vector<int32_t> values(n);
  for (int32_t& v : values) {
    v = width == 0 ? 0 : static_cast<int32_t>(random.next_u32() << (32 - width)) >> (32 - width);
  }
  if (n > 3 && width > 0) {
    values[n / 2] = std::numeric_limits<int32_t>::min() >> (32 - width);
    values[n / 3] = std::numeric_limits<int32_t>::max() >> (32 - width);
  }
  return values;
}

std::vector<std::byte> packed(std::span<const int32_t> values, Isa isa,
                              Packing packing = Packing::kFast) {
  std::vector<std::byte> bytes(largest_packed_size(values.size()));
  bytes.resize(pack(values, bytes.data(), packing, isa));
  return bytes;
}

// As many values, of a bell curve with this deviation.
std::vector<int32_t> bell(size_t n, double deviation, uint64_t seed) {
  RandomStream random(seed, Purpose::kUser);
  std::vector<int32_t> values(n);
  for (int32_t& v : values) {
    v = static_cast<int32_t>(std::lround(deviation * static_cast<double>(random.normal())));
  }
  return values;
}

TEST(PackedInts, RiceCodesGiveTheSameIntegersBack) {
  for (const Isa isa : usable_isas()) {
    for (const double deviation : {0.05, 0.4, 1.0, 2.0, 5.0, 30.0, 1e3, 1e6, 4e8}) {
      for (const size_t n : {1, 511, 512, 513, 5000}) {
        auto values = bell(n, deviation, n);
        if (n > 1000) values[700] = std::numeric_limits<int32_t>::min();
        const auto bytes = packed(values, isa, Packing::kSmall);
        ASSERT_EQ(bytes, packed(values, Isa::kBaseline, Packing::kSmall));
        ASSERT_LE(bytes.size(), packed(values, isa).size());
        std::vector<int32_t> back(n, 77);
        ASSERT_TRUE(unpack(bytes, back, isa));
        ASSERT_EQ(back, values) << deviation << ", " << n << " values";
        ASSERT_TRUE(unpack_add(bytes, back, isa));
        for (size_t i = 0; i < n; ++i) {
          ASSERT_EQ(static_cast<uint32_t>(back[i]), 2 * static_cast<uint32_t>(values[i]));
        }
      }
    }
  }
}

TEST(PackedInts, RiceCodesAreNearTheEntropyOfABellCurve) {
  for (const double deviation : {0.5, 1.0, 2.0, 4.0, 10.0}) {
    const auto values = bell(1 << 16, deviation, 3);
    const double bits =
        8.0 * static_cast<double>(packed(values, best_isa(), Packing::kSmall).size()) / (1 << 16);
    const double entropy = std::log2(deviation * std::sqrt(2 * 3.14159265 * 2.71828183));
    EXPECT_LT(bits, std::max(entropy, 1.2) + 0.35) << deviation;
    const double widths = 8.0 * static_cast<double>(packed(values, best_isa()).size()) / (1 << 16);
    EXPECT_LT(bits, 0.87 * widths) << deviation;
  }
}

TEST(PackedInts, RiceCodesThatAreTooShortOrWrongAreRefused) {
  const auto values = bell(2 * kPackGroup, 1.5, 6);
  auto bytes = packed(values, best_isa(), Packing::kSmall);
  std::vector<int32_t> back(values.size());
  ASSERT_TRUE(unpack(bytes, back));
  for (size_t n = 0; n < bytes.size(); ++n) {
    ASSERT_FALSE(unpack(std::span(bytes).first(n), back)) << n;
  }
  auto ones = bytes;
  std::fill_n(ones.begin() + 10, 8, std::byte{0xFF});
  EXPECT_FALSE(unpack(ones, back)) << "no code has so many ones";
  auto longer = bytes;
  longer[2] = static_cast<std::byte>(std::to_integer<int>(longer[2]) + 1);
  EXPECT_FALSE(unpack(longer, back)) << "bytes that no code uses";
  bytes[0] = std::byte{72};
  EXPECT_FALSE(unpack(bytes, back));
}

TEST(PackedInts, GiveTheSameIntegersBackWithEveryWidthAndInstructionSet) {
  for (const Isa isa : usable_isas()) {
    for (int width = 0; width <= 32; ++width) {
      for (const size_t n : {size_t{0}, size_t{1}, size_t{511}, size_t{512}, size_t{513},
                             size_t{4096}, size_t{5000}}) {
        const auto values = some_values(n, width, n * 33 + static_cast<size_t>(width));
        const auto bytes = packed(values, isa);
        ASSERT_EQ(bytes, packed(values, Isa::kBaseline));
        std::vector<int32_t> back(n, 77);
        ASSERT_TRUE(unpack(bytes, back, isa));
        ASSERT_EQ(back, values) << width << " bits, " << n << " values";
        ASSERT_TRUE(unpack_add(bytes, back, isa));
        for (size_t i = 0; i < n; ++i) {
          ASSERT_EQ(static_cast<uint32_t>(back[i]), 2 * static_cast<uint32_t>(values[i]));
        }
      }
    }
  }
}

TEST(PackedInts, TakeAsManyBitsAsAGroupNeeds) {
  for (int width = 1; width <= 32; ++width) {
    const auto values = some_values(4 * kPackGroup, width, 5);
    EXPECT_EQ(packed(values, best_isa()).size(),
              4 + 4 * kPackGroup * static_cast<size_t>(width) / 8);
  }
  std::vector<int32_t> values(3 * kPackGroup, 0);
  EXPECT_EQ(packed(values, best_isa()).size(), 3U);
  values[0] = -1;
  values[2 * kPackGroup] = 7;
  EXPECT_EQ(packed(values, best_isa()).size(), 3 + (1 + 4) * kPackGroup / 8);
  EXPECT_EQ(largest_packed_size(1), 1 + kPackGroup * 4);
}

TEST(PackedInts, RefuseWhatIsTooShortOrNotInTheFormat) {
  const auto values = some_values(3 * kPackGroup, 5, 6);
  auto bytes = packed(values, best_isa());
  std::vector<int32_t> back(values.size());
  EXPECT_TRUE(unpack(bytes, back));
  bytes.push_back(std::byte{0});
  EXPECT_TRUE(unpack(bytes, back)) << "it may be longer";
  for (size_t n = 0; n < bytes.size() - 1; ++n) {
    ASSERT_FALSE(unpack(std::span(bytes).first(n), back)) << n;
  }
  bytes[1] = std::byte{33};
  EXPECT_FALSE(unpack(bytes, back));
  EXPECT_FALSE(unpack_add(bytes, back));
}

}  // namespace
}  // namespace muster::exact
