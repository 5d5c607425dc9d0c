#include "muster/base/random.h"

#include <cmath>
#include <numbers>

#include "muster/base/hash.h"

namespace muster {

RandomStream::RandomStream(uint64_t seed, Purpose purpose, uint64_t a, uint64_t b) {
  const std::array<uint64_t, 4> name = {seed, static_cast<uint64_t>(purpose), a, b};
  const uint64_t key = hash64(name.data(), sizeof(name));
  key_ = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

uint32_t RandomStream::next_u32() {
  if (used_ == 4) {
    buffer_ = block(next_block_++);
    used_ = 0;
  }
  return buffer_[used_++];
}

uint64_t RandomStream::next_u64() {
  const uint64_t low = next_u32();
  return low | uint64_t{next_u32()} << 32;
}

uint64_t RandomStream::below(uint64_t n) {
  // Lemire's method: multiply, and draw again in the few cases that would favour small results.
  auto wide = static_cast<unsigned __int128>(next_u64()) * n;
  if (static_cast<uint64_t>(wide) < n) {
    const uint64_t threshold = -n % n;
    while (static_cast<uint64_t>(wide) < threshold) {
      wide = static_cast<unsigned __int128>(next_u64()) * n;
    }
  }
  return static_cast<uint64_t>(wide >> 64);
}

float RandomStream::uniform() { return static_cast<float>(next_u32() >> 8) * 0x1p-24F; }

float RandomStream::normal() {
  // u in (0, 1], so that the logarithm is finite.
  const double u = (static_cast<double>(next_u32()) + 1.0) * 0x1p-32;
  const double v = static_cast<double>(next_u32()) * 0x1p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
}

}  // namespace muster
