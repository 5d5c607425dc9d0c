// Small integers, packed for the wire.
//
// Sums of gradients of few bits (fixed_point.h) are int32 in memory and mostly small: a byte or
// less of each is used. pack() writes them with as many bits as they need; unpack() gives the same
// integers back, whatever they are, so packing never changes a result.
//
// Format. Values are taken in groups of kPackGroup; the last group is filled up with zeros.
//
//   one byte per group   its width w, 0 to 32: each value is in [-2^(w-1), 2^(w-1) - 1], or all are
//                        0 (w = 0). Or 64 + k, k from 0 to 7: Rice codes
//   then per group       64 w bytes: the values in two's complement of w bits: 16 streams of 32-bit
//                        words, in turn; stream c has the values c, c + 16, c + 32, ... of the
//                        group, each at the next free bit from the lowest up
//                        or, of Rice codes, how many bytes they are, in two bytes, and these bytes.
//                        A value v is u = 2 v, or -2 v - 1 if it is negative; of that u >> k ones
//                        and a zero, then the lowest k bits, from the lowest bit of each byte up
//
// Words are little-endian. Each width is that of its own group, so a few large values do not make
// all others wide. Streams in parallel are what vector instructions want: both directions run at
// about the speed of memcpy (exact_benchmark).
//
// Rice codes are shorter, as small values are more frequent than large ones: of rounded gradients
// by a fifth to a third. But they take some nanoseconds a value, so they pay on slow links only.
//
// Pure functions: safe for concurrent use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "muster/base/isa.h"

namespace muster::exact {

inline constexpr size_t kPackGroup = 512;

// The most bytes that so many values can take.
size_t largest_packed_size(size_t values);
enum class Packing : uint8_t {
  kFast,   // widths only
  kSmall,  // each group as widths or as Rice codes, whichever is shorter
};
// Writes to `out`, which has room for largest_packed_size(values.size()); returns how many bytes.
size_t pack(std::span<const int32_t> values, std::byte* out, Packing packing = Packing::kFast,
            Isa isa = best_isa());
// Both read as many values as there are in `values` or `sums` from the beginning of `packed`, which
// may be longer. False if it is too short or not in the format; the values are then undefined.
// values[i] = what was packed, and sums[i] += what was packed (sums wrap).
bool unpack(std::span<const std::byte> packed, std::span<int32_t> values, Isa isa = best_isa());
bool unpack_add(std::span<const std::byte> packed, std::span<int32_t> sums, Isa isa = best_isa());

}  // namespace muster::exact
