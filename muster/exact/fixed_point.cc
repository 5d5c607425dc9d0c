#include "muster/exact/fixed_point.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "muster/base/check.h"
#include "muster/base/random.h"
#include "muster/exact/random_words.h"

namespace muster::exact {
namespace {

// 2^e as a float; -126 <= e <= 127.
constexpr float power_of_two(int e) { return std::bit_cast<float>((e + 127) << 23); }

// The bits of |x|. As integers they are ordered as the magnitudes are, infinity and NaN on top.
MUSTER_ALWAYS_INLINE int32_t magnitude(float x) { return std::bit_cast<int32_t>(x) & 0x7fffffff; }

// Clamps before it converts: a float beyond int32 has no conversion in C++. Written so that NaN
// fails the first comparison and becomes `bound`, and so that each line is one vector instruction.
MUSTER_ALWAYS_INLINE float clamped(float x, float bound) {
  x = x < bound ? x : bound;
  return x > -bound ? x : -bound;
}

struct ToNearest {
  MUSTER_ALWAYS_INLINE int32_t operator()(float x, size_t) const {
    return static_cast<int32_t>(__builtin_rintf(x));
  }
};

struct AtRandom {
  RandomWords words;

  // The conversion truncates; x - truncated is exact. The number drawn is an odd multiple of 2^-24.
  MUSTER_ALWAYS_INLINE int32_t operator()(float x, size_t i) const {
    const auto truncated = static_cast<int32_t>(x);
    const float rest = __builtin_fabsf(x - static_cast<float>(truncated));
    const float drawn = (static_cast<float>(static_cast<int32_t>(words(i) >> 9)) + 0.5f) * 0x1p-23f;
    const int32_t away = x < 0 ? -1 : 1;
    return truncated + (drawn < rest ? away : 0);
  }
};

template <bool kAdd, typename Round>
struct Accumulate {
  // Returns the largest magnitude.
  MUSTER_ALWAYS_INLINE int32_t operator()(const float* __restrict g, size_t n, float scale,
                                          float bound, Round round, int32_t* __restrict sum) const {
    int32_t largest = 0;
    for (size_t i = 0; i < n; ++i) {
      largest = std::max(largest, magnitude(g[i]));
      const auto q = static_cast<uint32_t>(round(clamped(g[i] * scale, bound), i));
      // Unsigned: what is already in `sum` is not ours to trust.
      sum[i] = static_cast<int32_t>(kAdd ? static_cast<uint32_t>(sum[i]) + q : q);
    }
    return largest;
  }
};

struct Largest {
  MUSTER_ALWAYS_INLINE int32_t operator()(const float* g, size_t n) const {
    int32_t largest = 0;
    for (size_t i = 0; i < n; ++i) largest = std::max(largest, magnitude(g[i]));
    return largest;
  }
};

struct ToFloat {
  // The conversion rounds once. The product is exact: it is zero or at least 2^-126, since the sum
  // is an integer and s <= 126.
  MUSTER_ALWAYS_INLINE void operator()(const int32_t* __restrict sum, size_t n, float scale,
                                       float* __restrict out) const {
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(sum[i]) * scale;
  }
};

uint8_t exponent_byte(int32_t magnitude) { return static_cast<uint8_t>(magnitude >> 23); }

void check_scale(int s) {
  MUSTER_CHECK(-kMaxScale <= s && s <= kMaxScale, "a scale comes from scale_for");
}

template <bool kAdd, typename Round>
uint8_t accumulate(std::span<const float> g, int s, const SumFormat& format, Round round,
                   int32_t* sum, Isa isa) {
  check_scale(s);
  // Exact: a power of two, or below 2^15.
  const auto bound = static_cast<float>(lane_bound(format));
  const int32_t largest = run_for(isa, Accumulate<kAdd, Round>{}, g.data(), g.size(),
                                  power_of_two(s), bound, round, sum);
  return exponent_byte(largest);
}

AtRandom at_random(const Stochastic& rounding) {
  return {RandomWords(rounding.key, rounding.first)};
}

// (2^31 - 1) / lanes, rounded down.
uint32_t largest_share(int lanes) {
  MUSTER_CHECK(1 <= lanes && lanes <= kMaxLanes, "lanes must be from 1 to 65536");
  return static_cast<uint32_t>(0x7fffffff / lanes);
}

}  // namespace

SumFormat::SumFormat(int lanes, int bits) : lanes(lanes), bits(bits) {
  MUSTER_CHECK(bits == kAllBits || bits == 16 || bits == 8 || bits == 4 || bits == 2,
               "a lane has 32, 16, 8, 4 or 2 bits");
}

int lane_bits(const SumFormat& format) {
  return format.few() ? format.bits - 1 : std::bit_width(largest_share(format.lanes)) - 1;
}

int64_t lane_bound(const SumFormat& format) {
  const int bits = lane_bits(format);
  MUSTER_CHECK(bits >= 0, "a lane has bits");
  return (int64_t{1} << bits) - (format.few() ? 1 : 0);
}

// A float with exponent byte e is below 2^(e-126); that, scaled, is to be at most 2^k, and with all
// bits 8 times that.
int scale_for(uint8_t exponent, const SumFormat& format) {
  MUSTER_CHECK(exponent != kNotFinite, "no scale fits a gradient that is not finite");
  const int spare = format.few() ? 0 : kSpareBits;
  return std::clamp(lane_bits(format) - spare + 126 - exponent, -kMaxScale, kMaxScale);
}

// Exponent byte e fits if 2^(e-126) * 2^s <= 2^k; if not, even the smallest with this exponent,
// 2^(e-127), scales to 2^k or more. Subnormals have byte 0 and are below 2^-126.
uint8_t largest_exponent(int s, const SumFormat& format) {
  check_scale(s);
  return static_cast<uint8_t>(std::clamp(lane_bits(format) + 126 - s, 0, 254));
}

uint8_t exponent_of(std::span<const float> g, Isa isa) {
  return exponent_byte(run_for(isa, Largest{}, g.data(), g.size()));
}

Stochastic::Stochastic(uint64_t seed, int64_t step, int lane)
    : key(RandomStream(seed, Purpose::kRounding, static_cast<uint64_t>(step),
                       static_cast<uint64_t>(lane))
              .key()) {}

uint8_t store_block(std::span<const float> g, int s, const SumFormat& format, int32_t* sum,
                    Isa isa) {
  return accumulate<false>(g, s, format, ToNearest{}, sum, isa);
}

uint8_t store_block(std::span<const float> g, int s, const SumFormat& format,
                    const Stochastic& rounding, int32_t* sum, Isa isa) {
  return accumulate<false>(g, s, format, at_random(rounding), sum, isa);
}

uint8_t add_block(std::span<const float> g, int s, const SumFormat& format, int32_t* sum, Isa isa) {
  return accumulate<true>(g, s, format, ToNearest{}, sum, isa);
}

uint8_t add_block(std::span<const float> g, int s, const SumFormat& format,
                  const Stochastic& rounding, int32_t* sum, Isa isa) {
  return accumulate<true>(g, s, format, at_random(rounding), sum, isa);
}

void to_float(std::span<const int32_t> sum, int s, float* out, Isa isa) {
  check_scale(s);
  run_for(isa, ToFloat{}, sum.data(), sum.size(), power_of_two(-s), out);
}

std::vector<uint8_t> first_exponents(const BlockLayout& layout, std::span<const uint8_t> seen) {
  MUSTER_CHECK(seen.size() == layout.blocks().size(), "one exponent for each block");
  std::vector<uint8_t> exponents(seen.begin(), seen.end());
  const uint8_t largest_of_all =
      seen.empty() ? kNothing : *std::max_element(seen.begin(), seen.end());
  for (size_t t = 0; t < layout.tensors(); ++t) {
    const auto begin = exponents.begin() + static_cast<ptrdiff_t>(layout.first_block(t));
    const auto end = exponents.begin() + static_cast<ptrdiff_t>(layout.first_block(t + 1));
    if (begin == end) continue;
    const uint8_t largest = *std::max_element(begin, end);
    std::replace(begin, end, kNothing, largest == kNothing ? largest_of_all : largest);
  }
  return exponents;
}

int most_excess(const SumFormat& format) {
  return std::max(kLeastExcess, lane_bits(format) - kSpareBits - kLeastBits);
}

bool is_coarse(uint8_t used, uint8_t seen, const SumFormat& format) {
  return shows_gradient(seen) && used > seen + most_excess(format);
}

uint8_t next_exponent(uint8_t used, uint8_t seen, int64_t step, const SumFormat& format,
                      bool spike) {
  if (!shows_gradient(seen)) return used;
  const bool coarse = is_coarse(used, seen, format);
  if (coarse && spike) return static_cast<uint8_t>(seen + most_excess(format));
  const bool falls = step % (coarse ? kFallCoarse : kFallEvery) == 0 && used > 0;
  return std::max(static_cast<uint8_t>(falls ? used - 1 : used), seen);
}

// The gradient is in [2^(seen-127), 2^(seen-126)), the unit is 2^-s.
int bits_above_unit(uint8_t used, uint8_t seen, const SumFormat& format) {
  return std::max(0, scale_for(used, format) + seen - 126);
}

uint8_t redo_exponent(uint8_t used, uint8_t seen) {
  MUSTER_CHECK(seen != kNotFinite, "redoing the step would give the same infinity or NaN");
  return std::max(used, seen);
}

}  // namespace muster::exact
