// Keys in any order, sorted out by the shard that they fall into.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "muster/ps/server_map.h"
#include "muster/ps/shard_copy.h"
#include "muster/ps/table_data.h"

namespace muster::ps {

class ByShard {
 public:
  ByShard(std::span<const uint64_t> keys, ShardNumber shards);

  // take(shard, places): the places of its keys, of which there is at least one, with ascending
  // keys.
  template <typename Take>
  void for_each(Take take) const {
    for (size_t begin = 0; begin < order_.size();) {
      const ShardNumber shard = shard_[order_[begin]];
      size_t end = begin;
      while (end < order_.size() && shard_[order_[end]] == shard) ++end;
      take(shard, std::span<const uint32_t>(order_).subspan(begin, end - begin));
      begin = end;
    }
  }

 private:
  std::vector<ShardNumber> shard_;  // of each key
  std::vector<uint32_t> order_;     // places of keys
};

using PushesByShard = std::vector<std::pair<ShardNumber, Bytes>>;

// One push for each shard that has keys of these. No key twice. `floats`: for each key (floats_of).
PushesByShard pushes_by_shard(const PushHeader& header, std::span<const uint64_t> keys,
                              std::span<const float> gradients, size_t floats, ShardNumber shards);

}  // namespace muster::ps
