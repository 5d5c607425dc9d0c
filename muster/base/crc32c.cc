#include "muster/base/crc32c.h"

#include <array>
#include <cstring>

namespace muster {
namespace {

using Table = std::array<uint32_t, 256>;

// kTable[k][b]: what the byte b adds when k more bytes follow it in a group of eight.
constexpr auto kTable = [] {
  std::array<Table, 8> table{};
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

// What `length` bytes of zeros make of a CRC: a linear function of its bits, so the exclusive or of
// what they make of each of its four bytes.
struct Zeros {
  size_t length;
  std::array<Table, 4> of_byte{};

  explicit constexpr Zeros(size_t bytes) : length(bytes) {
    std::array<uint32_t, 32> of_bit{};
    for (size_t bit = 0; bit < of_bit.size(); ++bit) {
      uint32_t crc = uint32_t{1} << bit;
      for (size_t i = 0; i < length; ++i) crc = (crc >> 8) ^ kTable[0][crc & 0xff];
      of_bit[bit] = crc;
    }
    for (size_t k = 0; k < of_byte.size(); ++k) {
      for (size_t value = 0; value < 256; ++value) {
        for (size_t bit = 0; bit < 8; ++bit) {
          if ((value >> bit & 1) != 0) of_byte[k][value] ^= of_bit[8 * k + bit];
        }
      }
    }
  }

  uint32_t behind(uint64_t crc) const {
    return of_byte[0][crc & 0xff] ^ of_byte[1][crc >> 8 & 0xff] ^ of_byte[2][crc >> 16 & 0xff] ^
           of_byte[3][crc >> 24 & 0xff];
  }
};

// Thirds of long and of short stretches, in whole words.
constexpr Zeros kLong(1024);
constexpr Zeros kShort(128);

uint64_t word_at(const std::byte* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// The instruction takes three cycles, and one can begin in each. So three thirds of a stretch are
// summed side by side, each as if nothing preceded it, and then put together.
__attribute__((target("sse4.2"))) uint64_t add_thirds(uint64_t crc, std::span<const std::byte>& all,
                                                      const Zeros& third) {
  while (all.size() >= 3 * third.length) {
    const std::byte* const first = all.data();
    const std::byte* const second = first + third.length;
    const std::byte* const last = second + third.length;
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < third.length; i += sizeof(uint64_t)) {
      crc = __builtin_ia32_crc32di(crc, word_at(first + i));
      b = __builtin_ia32_crc32di(b, word_at(second + i));
      c = __builtin_ia32_crc32di(c, word_at(last + i));
    }
    crc = third.behind(third.behind(crc) ^ b) ^ c;
    all = all.subspan(3 * third.length);
  }
  return crc;
}

__attribute__((target("sse4.2"))) uint32_t by_instruction(std::span<const std::byte> bytes) {
  uint64_t crc = ~uint32_t{0};
  crc = add_thirds(crc, bytes, kLong);
  crc = add_thirds(crc, bytes, kShort);
  for (; bytes.size() >= sizeof(uint64_t); bytes = bytes.subspan(sizeof(uint64_t))) {
    crc = __builtin_ia32_crc32di(crc, word_at(bytes.data()));
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

}  // namespace muster
