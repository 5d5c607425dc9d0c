#include "muster/model/random_fill.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "muster/base/check.h"
#include "muster/base/isa.h"
#include "muster/model/random_words.h"

namespace muster::model {
namespace {

// Words are made a chunk at a time, small enough to stay in the first cache.
constexpr size_t kChunkGroups = 16;
constexpr size_t kChunk = kChunkGroups * kRandomGroup;

// Calls use(words, first element, count) for chunk after chunk of `size` elements.
template <typename Use>
void for_each_chunk(const RandomStream& stream, size_t size, Use use) {
  const Isa isa = best_isa();
  alignas(64) uint32_t words[kChunk];
  for (size_t start = 0; start < size; start += kChunk) {
    const size_t count = std::min(kChunk, size - start);
    const size_t groups = (count + kRandomGroup - 1) / kRandomGroup;
    random_words(isa, stream.key(), start / kRandomGroup, groups, words);
    use(isa, words, start, count);
  }
}

struct UniformLoop {
  MUSTER_ALWAYS_INLINE void operator()(const uint32_t* words, float low, float width, float* out,
                                       size_t count) const {
    for (size_t e = 0; e < count; ++e) {
      // 24 bits, which a float holds exactly; by way of int32, which has a vector conversion.
      out[e] = low + width * (static_cast<float>(static_cast<int32_t>(words[e] >> 8)) * 0x1p-24F);
    }
  }
};

// What becomes of an element: kept and scaled up, or dropped.
struct Chance {
  uint32_t threshold;  // dropped if its word is below
  float scale;
};

struct DropoutLoop {
  MUSTER_ALWAYS_INLINE void operator()(const uint32_t* words, Chance chance, const float* in,
                                       float* out, size_t count) const {
    for (size_t e = 0; e < count; ++e) {
      out[e] = in[e] * (words[e] >= chance.threshold ? chance.scale : 0.0F);
    }
  }

  MUSTER_ALWAYS_INLINE void operator()(const uint32_t* words, Chance chance, const uint16_t* in,
                                       uint16_t* out, size_t count) const {
    for (size_t e = 0; e < count; ++e) {
      const float factor = words[e] >= chance.threshold ? chance.scale : 0.0F;
      const auto bits =
          std::bit_cast<uint32_t>(std::bit_cast<float>(uint32_t{in[e]} << 16) * factor);
      const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
      const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
      out[e] = static_cast<uint16_t>(is_nan ? 0x7FC0 : rounded);
    }
  }
};

template <typename T>
void dropout(const RandomStream& stream, double p, std::span<const T> in, std::span<T> out) {
  MUSTER_CHECK(p >= 0 && p < 1, "dropout needs 0 <= p < 1");
  MUSTER_CHECK(in.size() == out.size(), "dropout: the sizes differ");
  // p just below 1 would round up to 2^32.
  const auto threshold = std::min<int64_t>(std::llround(p * 0x1p32), UINT32_MAX);
  const Chance chance{static_cast<uint32_t>(threshold), static_cast<float>(1.0 / (1.0 - p))};
  for_each_chunk(
      stream, in.size(), [&](Isa isa, const uint32_t* words, size_t start, size_t count) {
        run_for(isa, DropoutLoop{}, words, chance, in.data() + start, out.data() + start, count);
      });
}

}  // namespace

void fill_uniform(const RandomStream& stream, float low, float high, std::span<float> out) {
  for_each_chunk(stream, out.size(),
                 [&](Isa isa, const uint32_t* words, size_t start, size_t count) {
                   run_for(isa, UniformLoop{}, words, low, high - low, out.data() + start, count);
                 });
}

void fill_normal(const RandomStream& stream, double mean, double deviation, std::span<float> out) {
  constexpr size_t kHalf = kRandomGroup / 2;
  for_each_chunk(stream, out.size(), [&](Isa, const uint32_t* words, size_t start, size_t count) {
    for (size_t g = 0; g < count; g += kRandomGroup) {
      float normals[kRandomGroup];
      for (size_t e = 0; e < kHalf; ++e) {
        // u in (0, 1], so that the logarithm is finite.
        const double u = (static_cast<double>(words[g + e]) + 1.0) * 0x1p-32;
        const double turn = static_cast<double>(words[g + kHalf + e]) * 0x1p-32;
        const double radius = deviation * std::sqrt(-2.0 * std::log(u));
        const double angle = 2.0 * std::numbers::pi * turn;
        normals[e] = static_cast<float>(mean + radius * std::cos(angle));
        normals[kHalf + e] = static_cast<float>(mean + radius * std::sin(angle));
      }
      std::copy_n(normals, std::min(kRandomGroup, count - g), out.begin() + start + g);
    }
  });
}

void apply_dropout(const RandomStream& stream, double p, std::span<const float> in,
                   std::span<float> out) {
  dropout<float>(stream, p, in, out);
}

void apply_dropout(const RandomStream& stream, double p, std::span<const uint16_t> in,
                   std::span<uint16_t> out) {
  dropout<uint16_t>(stream, p, in, out);
}

}  // namespace muster::model
