// Rows of a checkpoint for somebody who serves the model: keys and weights, without the state of
// optimizers, keys that have no row yet, and what is under way.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "muster/base/result.h"
#include "muster/ps/server_map.h"
#include "muster/ps/table.h"

namespace muster::ps {

struct ExportedRows {
  std::vector<uint64_t> keys;     // ascending
  std::vector<float> weights;     // of each key, one after the other
  std::vector<uint64_t> evicted;  // ascending; none of them is in `keys`
  // `evicted` is complete if the export is of what changed since this clock, or a later one.
  int64_t evicted_after = 0;
};

// Of table `table`, what changed since the clock of its shards (TableData) was `since`: rows that
// were updated, and keys whose rows were evicted. 0: all rows, and whatever is known to be evicted.
// Whoever has the rows as they were at `since`, removes those of `evicted` and puts in those of
// `keys`, has the rows as they are.
// `shards`: what TableData::save_rows gave, all of them.
Result<ExportedRows> export_rows(std::span<const TableOptions> tables, uint32_t table,
                                 std::span<const std::string_view> shards, int64_t since);

}  // namespace muster::ps
