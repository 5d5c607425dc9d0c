#include "muster/sync/subset.h"

#include <algorithm>
#include <bitset>

#include "muster/base/check.h"
#include "muster/exact/block_layout.h"

namespace muster::sync {

size_t share_of(size_t size, int64_t keep) {
  const size_t share =
      (size * static_cast<size_t>(keep) + exact::kBlockSize / 2) / exact::kBlockSize;
  return std::max<size_t>(share, 1);
}

// Floyd's: Bentley, Floyd, "A sample of brilliance", CACM 30(9), 1987.
void draw_subset(RandomStream random, size_t size, std::span<uint16_t> places) {
  MUSTER_CHECK(places.size() <= size && size <= exact::kBlockSize, "a part of a block");
  std::bitset<exact::kBlockSize> taken;
  for (size_t last = size - places.size(); last < size; ++last) {
    const size_t drawn = random.below(last + 1);
    taken.set(taken.test(drawn) ? last : drawn);
  }
  size_t next = 0;
  for (size_t place = 0; place < size; ++place) {
    if (taken.test(place)) places[next++] = static_cast<uint16_t>(place);
  }
}

}  // namespace muster::sync
