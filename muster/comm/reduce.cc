#include "muster/comm/reduce.h"

#include <algorithm>

#include "muster/base/check.h"

namespace muster::comm {
namespace {

struct SumInt32 {
  // Unsigned, because signed overflow would be undefined. The bits are the same.
  MUSTER_ALWAYS_INLINE void operator()(uint32_t* __restrict into, const uint32_t* __restrict from,
                                       size_t n) const {
    for (size_t i = 0; i < n; ++i) into[i] += from[i];
  }
};

struct SumFloat {
  MUSTER_ALWAYS_INLINE void operator()(float* __restrict into, const float* __restrict from,
                                       size_t n) const {
    for (size_t i = 0; i < n; ++i) into[i] += from[i];
  }
};

struct MaxUint8 {
  MUSTER_ALWAYS_INLINE void operator()(uint8_t* __restrict into, const uint8_t* __restrict from,
                                       size_t n) const {
    for (size_t i = 0; i < n; ++i) into[i] = std::max(into[i], from[i]);
  }
};

}  // namespace

size_t element_size(Reduction reduction) { return reduction == Reduction::kMaxUint8 ? 1 : 4; }

std::string_view element_name(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSumInt32:
      return "int32";
    case Reduction::kSumFloat:
      return "float";
    case Reduction::kMaxUint8:
      return "uint8";
  }
  return "unknown";
}

void reduce_into(Reduction reduction, void* into, const void* from, size_t count, Isa isa) {
  switch (reduction) {
    case Reduction::kSumInt32:
      return run_for(isa, SumInt32{}, static_cast<uint32_t*>(into),
                     static_cast<const uint32_t*>(from), count);
    case Reduction::kSumFloat:
      return run_for(isa, SumFloat{}, static_cast<float*>(into), static_cast<const float*>(from),
                     count);
    case Reduction::kMaxUint8:
      return run_for(isa, MaxUint8{}, static_cast<uint8_t*>(into),
                     static_cast<const uint8_t*>(from), count);
  }
  check_failed("reduction", __FILE__, __LINE__, "no such reduction");
}

}  // namespace muster::comm
