#include "muster/data/sample_order.h"

#include <cstddef>

#include "muster/base/check.h"

namespace muster::data {

void FullOrder::samples(const Slice& positions, std::span<uint64_t> into) const {
  MUSTER_CHECK(into.size() == positions.count, "room for exactly these samples");
  if (positions.count == 0) return;
  uint64_t number = positions.first / order_.size();
  uint64_t position = positions.first % order_.size();
  Order::Pass pass = order_.pass(number);
  for (size_t i = 0; i < into.size(); ++i, ++position) {
    if (position == order_.size()) {
      pass = order_.pass(++number);
      position = 0;
    }
    into[i] = pass(position);
  }
}

}  // namespace muster::data
