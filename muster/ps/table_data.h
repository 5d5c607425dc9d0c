// What one shard holds of all tables of a job (ShardData of shard_copy.h), and pushes as bytes.
//
// A push is one update of some rows of one table:
//
//   PushHeader, then `count` keys (8 bytes each), then `count` x width floats
//
// The keys ascend, so none is there twice, and all fall into the shard.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/ps/server_map.h"
#include "muster/ps/shard_copy.h"
#include "muster/ps/table.h"

namespace muster::ps {

struct PushHeader {
  uint32_t table = 0;  // its id
  uint32_t count = 0;  // of keys
  int64_t step = 0;    // from 0
  double lr = 0;
};
static_assert(sizeof(PushHeader) == 24);

// `keys` ascend; `gradients`: one after the other.
std::string push_bytes(uint32_t table, int64_t step, double lr, std::span<const uint64_t> keys,
                       std::span<const float> gradients);

class TableData final : public ShardData {
 public:
  // `tables` and `slabs` must outlive it. The id of a table is its place.
  TableData(ShardNumber shard, ShardNumber shards, std::span<const TableOptions> tables,
            Slabs& slabs);

  TableShard& table(uint32_t id) { return tables_[id]; }

  Status check(std::string_view push) const override;
  Status apply(std::string_view push) override;
  void save(std::string& to) override;
  Status load(std::string_view from) override;
  void clear() override;

  // Of all tables.
  Hash128 hash();

 private:
  struct Parsed {
    PushHeader header;
    std::span<const uint64_t> keys;
    const float* gradients = nullptr;
  };
  // Copies what does not lie where numbers of its kind may.
  Result<Parsed> parse(std::string_view push);
  Status check_header(std::string_view push, PushHeader& header) const;
  Status load_table(TableShard& table, std::string_view& from);

  const ShardNumber shard_;
  const ShardNumber shards_;
  std::vector<TableShard> tables_;
  // Of one call.
  std::vector<uint64_t> keys_;
  std::vector<float> gradients_;
  std::vector<float> values_;
};

}  // namespace muster::ps
