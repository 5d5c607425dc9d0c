// CRC-32C (Castagnoli), with the processor's instruction where there is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace muster {

uint32_t crc32c(std::span<const std::byte> bytes);
// The same without that instruction, for tests and other processors.
uint32_t crc32c_by_table(std::span<const std::byte> bytes);

// As TFRecord stores it: rotated, plus a constant, so that a CRC over data that contains CRCs is
// still of use.
inline uint32_t masked_crc32c(std::span<const std::byte> bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

}  // namespace muster
