#include "muster/ps/cold_tier.h"

#include <algorithm>

#include "muster/ps/tiered_rows.h"

namespace muster::ps {
namespace {

constexpr size_t kLookAt = 256;  // parts, at a time

}  // namespace

ColdTier::Counts ColdTier::counts() const {
  Counts counts = counts_;
  for (const TieredRows* const part : parts_) {
    if (part == nullptr) continue;
    counts.in_memory += part->in_memory();
    counts.on_disk += part->size() - part->in_memory();
  }
  return counts;
}

size_t ColdTier::join(TieredRows& part) {
  parts_.push_back(&part);
  return parts_.size() - 1;
}

TieredRows* ColdTier::donor_for(const TieredRows& needy) {
  const size_t most = needy.in_memory() > 0 ? std::min(kLookAt, parts_.size()) : parts_.size();
  for (size_t looked = 0; looked < most; ++looked) {
    next_ = (next_ + 1) % parts_.size();
    TieredRows* const part = parts_[next_];
    if (part == nullptr || part == &needy || !part->can_give()) continue;
    if (part->bytes() > 2 * needy.bytes()) return part;
  }
  return nullptr;
}

}  // namespace muster::ps
