#include "muster/ps/by_shard.h"

#include <algorithm>
#include <numeric>

namespace muster::ps {

ByShard::ByShard(std::span<const uint64_t> keys, ShardNumber shards)
    : shard_(keys.size()), order_(keys.size()) {
  for (size_t i = 0; i < keys.size(); ++i) shard_[i] = shard_of(keys[i], shards);
  if (!std::ranges::is_sorted(keys)) {
    std::iota(order_.begin(), order_.end(), 0U);
    std::ranges::sort(order_, {}, [&](uint32_t i) { return std::pair(shard_[i], keys[i]); });
    return;
  }
  std::vector<uint32_t> ends(size_t{shards} + 1);
  for (const ShardNumber shard : shard_) ++ends[shard + 1];
  for (size_t i = 1; i < ends.size(); ++i) ends[i] += ends[i - 1];
  for (uint32_t i = 0; i < shard_.size(); ++i) order_[ends[shard_[i]]++] = i;
}

PushesByShard pushes_by_shard(const PushHeader& header, std::span<const uint64_t> keys,
                              std::span<const float> gradients, size_t floats, ShardNumber shards) {
  PushesByShard pushes;
  ByShard(keys, shards).for_each([&](ShardNumber shard, std::span<const uint32_t> places) {
    pushes.emplace_back(shard, push_bytes(header, keys, gradients, floats, places));
  });
  return pushes;
}

}  // namespace muster::ps
