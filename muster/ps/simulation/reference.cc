#include "muster/ps/simulation/reference.h"

#include <algorithm>

#include <fmt/format.h>

#include "muster/base/check.h"
#include "muster/ps/by_shard.h"

namespace muster::ps::simulation {

Reference::Reference(ShardNumber shards, std::span<const TableOptions> tables) : tables_(tables) {
  for (ShardNumber i = 0; i < shards; ++i) {
    shards_.push_back(std::make_unique<TableData>(i, shards, tables_, slabs_));
  }
}

std::vector<float> Reference::read(uint32_t table, std::span<const uint64_t> keys) {
  const size_t width = tables_[table].width;
  std::vector<float> rows(keys.size() * width);
  for (size_t i = 0; i < keys.size(); ++i) {
    auto& shard = *shards_[shard_of(keys[i], static_cast<ShardNumber>(shards_.size()))];
    shard.table(table).read(keys.subspan(i, 1), &rows[i * width]);
  }
  return rows;
}

void Reference::push(const PushHeader& header, std::span<const uint64_t> keys,
                     std::span<const float> gradients) {
  const size_t floats = floats_of(header.kind, tables_[header.table].width);
  const auto pushes =
      pushes_by_shard(header, keys, gradients, floats, static_cast<ShardNumber>(shards_.size()));
  for (const auto& [shard, bytes] : pushes) apply(shard, *bytes);
}

void Reference::push_to_all(const std::string& push) {
  for (ShardNumber shard = 0; shard < shards_.size(); ++shard) apply(shard, push);
}

void Reference::apply(ShardNumber shard, std::string_view push) {
  const auto applied = shards_[shard]->apply(push);
  MUSTER_CHECK(applied.ok(), "the reference cannot apply a push");
}

std::string Reference::compare(std::span<TableData* const> shards) {
  if (shards.size() != shards_.size()) return "there are other shards than there should be";
  for (size_t i = 0; i < shards.size(); ++i) {
    if (shards[i]->clock() != shards_[i]->clock()) {
      return fmt::format("the clock of shard {} is {}, and should be {}", i, shards[i]->clock(),
                         shards_[i]->clock());
    }
    if (shards[i]->hash() != shards_[i]->hash()) {
      return fmt::format("the rows of shard {} are not those of the reference", i);
    }
  }
  return {};
}

}  // namespace muster::ps::simulation
