// The arithmetic of reductions: into[i] = into[i] (+ or max) from[i], with the widest vectors of
// this machine. Touches only the memory passed in; `into` and `from` may not overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "muster/base/isa.h"

namespace muster::comm {

enum class Reduction : uint8_t { kSumInt32, kSumFloat, kMaxUint8 };

// Bytes of one element, and its name: "int32".
size_t element_size(Reduction reduction);
std::string_view element_name(Reduction reduction);

// Int32 sums wrap like unsigned ones; whoever must not wrap scales first (exact/fixed_point.h).
void reduce_into(Reduction reduction, void* into, const void* from, size_t count,
                 Isa isa = best_isa());

}  // namespace muster::comm
