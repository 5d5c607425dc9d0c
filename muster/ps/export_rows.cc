#include "muster/ps/export_rows.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "muster/ps/table_data.h"

namespace muster::ps {
namespace {

void add_shard(TableShard& table, int64_t since, ExportedRows& to) {
  const size_t width = table.options().width;
  table.for_each_row([&](const Row& row) {
    if (row.used < since) return;
    to.keys.push_back(row.key);
    to.weights.insert(to.weights.end(), row.values(), row.values() + width);
  });
  // One that was evicted more than once has several tombstones; one that is there again, some too.
  std::set<uint64_t> evicted;
  for (const Tombstone& tombstone : table.tombstones()) {
    if (tombstone.step > since && !table.has_row(tombstone.key)) evicted.insert(tombstone.key);
  }
  to.evicted.insert(to.evicted.end(), evicted.begin(), evicted.end());
  to.evicted_after = std::max<int64_t>(to.evicted_after, table.tombstones_after());
}

// So that the same rows give the same bytes, wherever they were.
void sort_by_key(ExportedRows& rows, size_t width) {
  std::vector<size_t> order(rows.keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return rows.keys[i]; });
  std::vector<float> weights;
  weights.reserve(rows.weights.size());
  for (const size_t i : order) {
    const auto row = rows.weights.begin() + static_cast<std::ptrdiff_t>(i * width);
    weights.insert(weights.end(), row, row + static_cast<std::ptrdiff_t>(width));
  }
  rows.weights = std::move(weights);
  std::ranges::sort(rows.keys);
  std::ranges::sort(rows.evicted);
}

}  // namespace

Result<ExportedRows> export_rows(std::span<const TableOptions> tables, uint32_t table,
                                 std::span<const std::string_view> shards, int64_t since) {
  ExportedRows rows;
  const auto count = static_cast<ShardNumber>(shards.size());
  for (ShardNumber i = 0; i < count; ++i) {
    Slabs slabs;
    TableData shard(i, count, tables, slabs);
    MUSTER_RETURN_IF_ERROR(shard.load(shards[i]));
    add_shard(shard.table(table), since, rows);
  }
  sort_by_key(rows, tables[table].width);
  return rows;
}

}  // namespace muster::ps
