#include "muster/base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace muster {

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

uint64_t hash64(const void* data, size_t size, uint64_t seed) {
  return XXH3_64bits_withSeed(data, size, seed);
}

Hash128 hash128(std::span<const std::byte> data) {
  const auto h = XXH3_128bits(data.data(), data.size());
  return {h.high64, h.low64};
}

struct Hasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() { XXH3_128bits_reset(xxh); }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

Hasher& Hasher::add(const void* data, size_t size) {
  XXH3_128bits_update(state_->xxh, data, size);
  return *this;
}

Hash128 Hasher::finish() const {
  const auto h = XXH3_128bits_digest(state_->xxh);
  return {h.high64, h.low64};
}

}  // namespace muster
