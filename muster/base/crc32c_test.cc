#include "muster/base/crc32c.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// RFC 3720, B.4, and the usual check value.
TEST(Crc32cTest, KnownValues) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283U);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8a9136aaU);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xff'))), 0x62a8ab43U);
  EXPECT_EQ(crc32c({}), 0U);
}

TEST(Crc32cTest, TheInstructionAndTheTableAgree) {
  std::vector<std::byte> bytes(20000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i / 7 + i % 13);
  // Around the borders of stretches that are summed in thirds: 3 x 128 and 3 x 1,024 bytes.
  std::vector<size_t> lengths = {3071, 3072, 3073, 3080,  3455, 3456,
                                 3457, 6144, 6655, 12304, 19990};
  for (size_t length = 0; length < 900; ++length) lengths.push_back(length);
  for (const size_t length : lengths) {
    const auto part = std::span<const std::byte>(bytes).subspan(length % 10, length);
    ASSERT_EQ(crc32c(part), crc32c_by_table(part)) << length;
  }
}

}  // namespace
}  // namespace muster
