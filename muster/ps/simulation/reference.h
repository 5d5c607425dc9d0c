// The tables of a schedule in one place and without faults: what servers must come to.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "muster/ps/slabs.h"
#include "muster/ps/table_data.h"

namespace muster::ps::simulation {

class Reference {
 public:
  // `tables` must outlive it.
  Reference(ShardNumber shards, std::span<const TableOptions> tables);

  std::vector<float> read(uint32_t table, std::span<const uint64_t> keys);
  void push(const PushHeader& header, std::span<const uint64_t> keys,
            std::span<const float> gradients);
  void push_to_all(const std::string& push);
  // What is different there; empty: nothing. `shards`: a copy of each.
  std::string compare(std::span<TableData* const> shards);

 private:
  void apply(ShardNumber shard, std::string_view push);

  const std::span<const TableOptions> tables_;
  Slabs slabs_;
  std::vector<std::unique_ptr<TableData>> shards_;
};

}  // namespace muster::ps::simulation
