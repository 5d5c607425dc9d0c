#include "muster/data/formats.h"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace muster::data {
namespace {

TEST(PixelValuesTest, EachByteBecomesItsValueWhateverTheirNumber) {
  std::array<float, 256> value{};
  for (size_t i = 0; i < 256; ++i) value[i] = static_cast<float>(i) - 100.5F;
  std::vector<uint8_t> bytes(300);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37);
  for (size_t count = 0; count < bytes.size(); ++count) {
    for (size_t first = 0; first < 3 && first <= count; ++first) {  // not aligned
      const auto some = std::span(bytes).subspan(first, count - first);
      std::vector<float> out(some.size() + 1, -1);
      put_pixel_values(value, some, out.data());
      for (size_t i = 0; i < some.size(); ++i) ASSERT_EQ(out[i], value[some[i]]) << count;
      ASSERT_EQ(out.back(), -1) << "behind the end";
    }
  }
}

}  // namespace
}  // namespace muster::data
