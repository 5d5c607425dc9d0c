#include "muster/exact/packed_ints.h"

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

std::vector<std::byte> packed(std::span<const int32_t> values, Isa isa) {
  std::vector<std::byte> bytes(largest_packed_size(values.size()));
  bytes.resize(pack(values, bytes.data(), isa));
  return bytes;
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
