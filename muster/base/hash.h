// Hashes that say whether two things are the same bits. XXH3: fast (memory speed) and well spread,
// not cryptographic: it finds accidents, not attackers.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace muster {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const Hash128&) const = default;
  // 32 lower-case hexadecimal digits.
  std::string hex() const;
};

uint64_t hash64(const void* data, size_t size, uint64_t seed = 0);
Hash128 hash128(std::span<const std::byte> data);

// The hash of data that comes in pieces; equal to hash128 of the whole.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  Hasher& add(const void* data, size_t size);
  Hasher& add(std::span<const std::byte> data) { return add(data.data(), data.size()); }
  Hash128 finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster
