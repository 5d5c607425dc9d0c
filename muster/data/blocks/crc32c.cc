#include "muster/data/blocks/crc32c.h"

#include <array>
#include <cstring>

namespace muster::data {
namespace {

// kTable[k][b]: what the byte b adds when k more bytes follow it in a group of eight.
constexpr auto kTable = [] {
  std::array<std::array<uint32_t, 256>, 8> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
    table[0][i] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t i = 0; i < 256; ++i) {
      table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 0xff];
    }
  }
  return table;
}();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t by_instruction(std::span<const std::byte> bytes) {
  uint64_t crc = ~uint32_t{0};
  while (bytes.size() >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    crc = __builtin_ia32_crc32di(crc, word);
    bytes = bytes.subspan(8);
  }
  auto tail = static_cast<uint32_t>(crc);
  for (const std::byte b : bytes) tail = __builtin_ia32_crc32qi(tail, static_cast<uint8_t>(b));
  return ~tail;
}
#endif

}  // namespace

uint32_t crc32c_by_table(std::span<const std::byte> bytes) {
  uint32_t crc = ~uint32_t{0};
  while (bytes.size() >= 8) {
    std::array<uint8_t, 8> b{};
    std::memcpy(b.data(), bytes.data(), 8);
    for (size_t i = 0; i < 4; ++i) b[i] ^= static_cast<uint8_t>(crc >> (8 * i));
    crc = 0;
    for (size_t i = 0; i < 8; ++i) crc ^= kTable[7 - i][b[i]];
    bytes = bytes.subspan(8);
  }
  for (const std::byte b : bytes) {
    crc = (crc >> 8) ^ kTable[0][(crc ^ static_cast<uint8_t>(b)) & 0xff];
  }
  return ~crc;
}

uint32_t crc32c(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return by_instruction(bytes);
#endif
  return crc32c_by_table(bytes);
}

}  // namespace muster::data
