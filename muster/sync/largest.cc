#include "muster/sync/largest.h"

#include <algorithm>
#include <array>
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

// The smallest of the maxima of `columns` (a multiple of kColumns) columns in whole rows.
struct Bound {
  MUSTER_ALWAYS_INLINE int32_t operator()(const float* values, size_t columns, size_t rows) const {
    int32_t smallest = kMagnitude;
    for (size_t c = 0; c < columns; c += kColumns) {
      Ints largest = {};
      for (size_t r = 0; r < rows; ++r) {
        Ints v;  // NOLINT(*-init-variables): written at once
        std::memcpy(&v, values + r * columns + c, sizeof(v));
        v &= kMagnitude;
        largest = v > largest ? v : largest;
      }
      for (size_t i = 0; i < kColumns; ++i) smallest = std::min(smallest, largest[i]);
    }
    return smallest;
  }
};

// The places of all that reach the bound.
struct Candidates {
  MUSTER_ALWAYS_INLINE size_t operator()(const float* values, size_t size, int32_t bound,
                                         uint16_t* out) const {
    size_t count = 0;
    for (size_t i = 0; i < size; ++i) {
      out[count] = static_cast<uint16_t>(i);
      count += magnitude(values + i) >= bound ? 1 : 0;
    }
    return count;
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
  const size_t columns = (keep + kColumns - 1) / kColumns * kColumns;
  const size_t rows = values.size() / columns;
  const int32_t bound = rows < 2 ? 0 : run_for(isa, Bound{}, values.data(), columns, rows);
  std::array<uint16_t, exact::kBlockSize>
      reached;  // NOLINT(*-member-init): written before it is read
  const size_t count =
      run_for(isa, Candidates{}, values.data(), values.size(), bound, reached.data());
  // In the order that is asked for: from the largest on, then by place.
  std::array<uint64_t, exact::kBlockSize>
      order;  // NOLINT(*-member-init): written before it is read
  for (size_t i = 0; i < count; ++i) {
    const auto down = static_cast<uint64_t>(kMagnitude - magnitude(&values[reached[i]]));
    order[i] = down << 16 | reached[i];
  }
  const auto last = order.begin() + static_cast<ptrdiff_t>(keep) - 1;
  std::nth_element(order.begin(), last, order.begin() + static_cast<ptrdiff_t>(count));
  const uint64_t worst = *last;
  size_t found = 0;
  for (size_t i = 0; i < count && found < keep; ++i) {
    const auto down = static_cast<uint64_t>(kMagnitude - magnitude(&values[reached[i]]));
    if ((down << 16 | reached[i]) <= worst) places[found++] = reached[i];
  }
}

}  // namespace muster::sync
