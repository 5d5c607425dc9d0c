#include "muster/exact/float_sum.h"

#include <algorithm>
#include <bit>

namespace muster::exact {
namespace {

template <bool kAdd>
struct AccumulateFloats {
  MUSTER_ALWAYS_INLINE int32_t operator()(const float* __restrict g, size_t n,
                                          float* __restrict sum) const {
    int32_t largest = 0;
    for (size_t i = 0; i < n; ++i) {
      largest = std::max(largest, std::bit_cast<int32_t>(g[i]) & 0x7fffffff);
      sum[i] = kAdd ? sum[i] + g[i] : g[i];
    }
    return largest;
  }
};

}  // namespace

uint8_t store_floats(std::span<const float> g, float* sum, Isa isa) {
  return static_cast<uint8_t>(run_for(isa, AccumulateFloats<false>{}, g.data(), g.size(), sum) >>
                              23);
}

uint8_t add_floats(std::span<const float> g, float* sum, Isa isa) {
  return static_cast<uint8_t>(run_for(isa, AccumulateFloats<true>{}, g.data(), g.size(), sum) >>
                              23);
}

}  // namespace muster::exact
