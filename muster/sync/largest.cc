#include "muster/sync/largest.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

#include "muster/base/check.h"
#include "muster/exact/block_layout.h"

namespace muster::sync {
namespace {

constexpr int32_t kMagnitude = 0x7FFFFFFF;
constexpr size_t kColumns = 16;  // that are looked at together
using Ints = int32_t __attribute__((vector_size(kColumns * sizeof(int32_t))));

// Of a float, as an integer of the same order.
MUSTER_ALWAYS_INLINE int32_t magnitude(const float* value) {
  int32_t bits;  // NOLINT(*-init-variables): written at once
  std::memcpy(&bits, value, sizeof(bits));
  return bits & kMagnitude;
}

// The maxima of `columns` (a multiple of kColumns) columns in whole rows.
struct Maxima {
  MUSTER_ALWAYS_INLINE void operator()(const float* values, size_t columns, size_t rows,
                                       int32_t* out) const {
    for (size_t c = 0; c < columns; c += kColumns) {
      Ints largest = {};
      for (size_t r = 0; r < rows; ++r) {
        Ints v;  // NOLINT(*-init-variables): written at once
        std::memcpy(&v, values + r * columns + c, sizeof(v));
        v &= kMagnitude;
        largest = v > largest ? v : largest;
      }
      std::memcpy(out + c, &largest, sizeof(largest));
    }
  }
};

// A bound that at least `keep` of the maxima reach, and few more: found bit by bit, from the
// exponent down to five bits of the mantissa.
struct Bound {
  MUSTER_ALWAYS_INLINE int32_t operator()(const int32_t* maxima, size_t columns,
                                          size_t keep) const {
    int32_t bound = 0;
    for (int32_t bit = 1 << 30; bit >= 1 << 18; bit >>= 1) {
      const int32_t higher = bound | bit;
      Ints reach = {};
      for (size_t c = 0; c < columns; c += kColumns) {
        Ints v;  // NOLINT(*-init-variables): written at once
        std::memcpy(&v, maxima + c, sizeof(v));
        reach -= v >= higher;  // a comparison that holds is -1
      }
      size_t count = 0;
      for (size_t i = 0; i < kColumns; ++i) count += static_cast<size_t>(reach[i]);
      if (count >= keep) bound = higher;
    }
    return bound;
  }
};

// Collects places, each with its magnitude, as numbers in the order that is asked for: from the
// largest magnitude on, then by place.
struct Candidates {
  const float* values;
  int32_t bound;
  uint64_t* out;
  size_t count = 0;
  // Writes in any case, as a branch that is taken at random costs more.
  MUSTER_ALWAYS_INLINE void look_at(size_t place) {
    const int32_t m = magnitude(values + place);
    out[count] = static_cast<uint64_t>(kMagnitude - m) << 16 | place;
    count += m >= bound ? 1 : 0;
  }
};

}  // namespace

void find_largest(std::span<const float> values, std::span<uint16_t> places, Isa isa) {
  const size_t keep = places.size();
  MUSTER_CHECK(keep <= values.size() && values.size() <= exact::kBlockSize,
               "more places than values, or more values than a block has");
  if (keep == 0) return;
  if (keep == values.size()) {
    std::iota(places.begin(), places.end(), uint16_t{0});
    return;
  }
  const auto round_up = [](size_t n) { return (n + kColumns - 1) / kColumns * kColumns; };
  size_t columns = round_up(8 * keep);
  if (values.size() / columns < 4) columns = round_up(keep);
  const size_t rows = values.size() / columns;
  std::array<uint64_t, exact::kBlockSize>
      order;  // NOLINT(*-member-init): written before it is read
  Candidates candidates = {.values = values.data(), .bound = 0, .out = order.data()};
  size_t seen = 0;
  if (rows >= 2) {
    std::array<int32_t, exact::kBlockSize> maxima;  // NOLINT(*-member-init): as above
    run_for(isa, Maxima{}, values.data(), columns, rows, maxima.data());
    candidates.bound = run_for(isa, Bound{}, maxima.data(), columns, keep);
    for (size_t c = 0; c < columns; ++c) {
      if (maxima[c] < candidates.bound) continue;
      for (size_t r = 0; r < rows; ++r) candidates.look_at(r * columns + c);
    }
    seen = rows * columns;
  }
  for (size_t i = seen; i < values.size(); ++i) candidates.look_at(i);
  const auto last = order.begin() + static_cast<ptrdiff_t>(keep) - 1;
  std::nth_element(order.begin(), last, order.begin() + static_cast<ptrdiff_t>(candidates.count));
  // In their order, by a bit for each place: faster than sorting them.
  std::array<uint64_t, exact::kBlockSize / 64> chosen = {};
  for (size_t i = 0; i < keep; ++i) chosen[(order[i] & 0xFFFF) / 64] |= 1ull << (order[i] & 63);
  size_t found = 0;
  for (size_t word = 0; word < chosen.size(); ++word) {
    for (uint64_t left = chosen[word]; left != 0; left &= left - 1) {
      places[found++] =
          static_cast<uint16_t>(word * 64 + static_cast<size_t>(std::countr_zero(left)));
    }
  }
}

}  // namespace muster::sync
