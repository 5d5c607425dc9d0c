#include "muster/exact/block_layout.h"

#include <algorithm>
#include <limits>

#include "muster/base/check.h"

namespace muster::exact {

BlockLayout::BlockLayout(std::span<const size_t> tensor_sizes, const std::vector<bool>& frozen) {
  MUSTER_CHECK(tensor_sizes.size() <= std::numeric_limits<uint32_t>::max(), "too many tensors");
  MUSTER_CHECK(frozen.empty() || frozen.size() == tensor_sizes.size(), "one for each tensor");
  const auto is_frozen = [&](size_t tensor) { return !frozen.empty() && frozen[tensor]; };
  const auto place = [&](size_t size) {
    const size_t begin = elements_;
    elements_ += (size + kAlign - 1) / kAlign * kAlign;
    return begin;
  };
  tensors_.reserve(tensor_sizes.size() + 1);
  for (const size_t size : tensor_sizes) {
    const auto tensor = static_cast<uint32_t>(tensors_.size());
    tensors_.push_back({0, size, blocks_.size()});
    if (is_frozen(tensor)) continue;
    const size_t begin = tensors_.back().begin = place(size);
    for (size_t done = 0; done < size; done += kBlockSize) {
      blocks_.push_back({tensor, begin + done, std::min(kBlockSize, size - done)});
    }
  }
  block_elements_ = elements_;
  for (size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
    if (is_frozen(tensor)) tensors_[tensor].begin = place(tensors_[tensor].size);
  }
  tensors_.push_back({elements_, 0, blocks_.size()});
}

}  // namespace muster::exact
