#include "muster/exact/block_layout.h"

#include <algorithm>
#include <limits>

#include "muster/base/check.h"

namespace muster::exact {

BlockLayout::BlockLayout(std::span<const size_t> tensor_sizes) {
  MUSTER_CHECK(tensor_sizes.size() <= std::numeric_limits<uint32_t>::max(), "too many tensors");
  tensors_.reserve(tensor_sizes.size() + 1);
  for (const size_t size : tensor_sizes) {
    const auto tensor = static_cast<uint32_t>(tensors_.size());
    tensors_.push_back({elements_, size, blocks_.size()});
    for (size_t done = 0; done < size; done += kBlockSize) {
      blocks_.push_back({tensor, elements_ + done, std::min(kBlockSize, size - done)});
    }
    elements_ += (size + kAlign - 1) / kAlign * kAlign;
  }
  tensors_.push_back({elements_, 0, blocks_.size()});
}

}  // namespace muster::exact
