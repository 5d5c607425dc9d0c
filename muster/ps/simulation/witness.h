// Knows what clients were told, and says what contradicts it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "muster/ps/shard_copy.h"
#include "muster/ps/simulation/recorded_data.h"

namespace muster::ps::simulation {

struct PushRecord {
  int client = 0;
  ShardNumber shard = 0;
  uint64_t nth = 0;  // of this client's to this shard, from 1
  Bytes bytes;
  bool answered = false;
};

// What is wrong is returned; empty: nothing.
class Witness {
 public:
  int64_t next_push() const { return static_cast<int64_t>(pushes_.size()); }
  void add_push(PushRecord push) { pushes_.push_back(std::move(push)); }
  const PushRecord& push(int64_t id) const { return pushes_[static_cast<size_t>(id)]; }
  void answered(int64_t id) { pushes_[static_cast<size_t>(id)].answered = true; }

  // Somebody was told of what this copy holds now.
  std::string told(ShardNumber shard, const ShardCopy& copy);
  // The latest place of a shard of which anybody was told.
  uint64_t latest(ShardNumber shard) { return seen_[shard].place; }
  // This copy was read by one who asked when `least` was the latest.
  std::string read(ShardNumber shard, const ShardCopy& copy, uint64_t least);
  // All copies of a shard at the end; `alone` is empty.
  std::string check_end(ShardNumber shard, std::span<RecordedData* const> copies,
                        RecordedData& alone) const;

 private:
  struct Seen {
    uint64_t place = 0;
    std::map<uint64_t, uint64_t> chains;  // by place
  };
  std::vector<PushRecord> pushes_;
  std::map<ShardNumber, Seen> seen_;
};

}  // namespace muster::ps::simulation
