#include "muster/exact/rotation.h"

#include <algorithm>
#include <bit>

#include "muster/base/random.h"
#include "muster/exact/random_words.h"

namespace muster::exact {
namespace {

constexpr size_t kSequences = 16;
constexpr size_t kLongest = 256;

struct FlipSigns {
  MUSTER_ALWAYS_INLINE void operator()(float* x, size_t n, float scale, RandomWords words) const {
    for (size_t i = 0; i < n; ++i) {
      const uint32_t sign = words(i) & 0x80000000u;
      x[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(x[i] * scale) ^ sign);
    }
  }
};

// Not normalised: twice in a row it multiplies by `length`.
struct Transform {
  MUSTER_ALWAYS_INLINE void operator()(float* x, size_t length) const {
    for (size_t half = 1; half < length; half *= 2) {
      for (size_t begin = 0; begin < length; begin += 2 * half) {
        float* __restrict a = x + begin * kSequences;
        float* __restrict b = a + half * kSequences;
        for (size_t i = 0; i < half * kSequences; ++i) {
          const float sum = a[i] + b[i];
          b[i] = a[i] - b[i];
          a[i] = sum;
        }
      }
    }
  }
};

// Calls body(piece, length of its sequences, first) for the pieces that are transformed.
template <typename Body>
void for_each_piece(std::span<float> block, uint64_t first, Body body) {
  while (block.size() >= 2 * kSequences) {
    const size_t length = std::min(kLongest, std::bit_floor(block.size() / kSequences));
    body(block.first(length * kSequences), length, first);
    block = block.subspan(length * kSequences);
    first += length * kSequences;
  }
}

// Forward and back together divide by the length; each by a power of two, so nothing is rounded.
float scale_forward(size_t length) {
  return 1.0f / static_cast<float>(size_t{1} << (std::bit_width(length) / 2));
}
float scale_back(size_t length) {
  return 1.0f / (static_cast<float>(length) * scale_forward(length));
}

}  // namespace

Rotation::Rotation(uint64_t seed, int64_t step)
    : key(RandomStream(seed, Purpose::kRotation, static_cast<uint64_t>(step)).key()) {}

void rotate(std::span<float> block, const Rotation& rotation, uint64_t first, Isa isa) {
  for_each_piece(block, first, [&](std::span<float> piece, size_t length, uint64_t at) {
    run_for(isa, FlipSigns{}, piece.data(), piece.size(), scale_forward(length),
            RandomWords(rotation.key, at));
    run_for(isa, Transform{}, piece.data(), length);
  });
}

void rotate_back(std::span<float> block, const Rotation& rotation, uint64_t first, Isa isa) {
  for_each_piece(block, first, [&](std::span<float> piece, size_t length, uint64_t at) {
    run_for(isa, Transform{}, piece.data(), length);
    run_for(isa, FlipSigns{}, piece.data(), piece.size(), scale_back(length),
            RandomWords(rotation.key, at));
  });
}

}  // namespace muster::exact
