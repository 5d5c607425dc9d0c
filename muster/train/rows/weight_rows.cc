#include "muster/train/rows/weight_rows.h"

#include <algorithm>
#include <numeric>

#include "muster/base/check.h"
#include "muster/train/rows/local_tables.h"

namespace muster::train {

WeightRows::WeightRows(Tables& tables, uint32_t table)
    : tables_(tables), table_(table), width_(tables.setup().tables[table].width) {}

std::vector<uint64_t> WeightRows::keys_of(size_t weights) const {
  std::vector<uint64_t> keys((weights + width_ - 1) / width_);
  std::iota(keys.begin(), keys.end(), 0);
  return keys;
}

Status WeightRows::read(int64_t clock, std::span<float> weights, std::vector<int64_t>& clocks,
                        const std::function<Status()>& if_late) const {
  const auto keys = keys_of(weights.size());
  std::vector<float> rows(keys.size() * width_);
  MUSTER_RETURN_IF_ERROR(tables_.read(table_, keys, clock, rows.data(), clocks, if_late));
  std::copy_n(rows.begin(), weights.size(), weights.begin());
  return {};
}

Status WeightRows::push(ps::PushHeader header, std::span<const float> gradient,
                        std::span<const float> read) const {
  const size_t floats = ps::floats_of(header.kind, width_);
  MUSTER_CHECK(floats == width_ || read.size() == gradient.size(), "weights for each gradient");
  header.table = table_;
  const auto keys = keys_of(gradient.size());
  std::vector<float> rows(keys.size() * floats, 0.0f);
  for (size_t i = 0; i < keys.size(); ++i) {
    const size_t first = i * width_;
    const size_t size = std::min(width_, gradient.size() - first);
    std::ranges::copy(gradient.subspan(first, size), &rows[i * floats]);
    if (floats > width_) std::ranges::copy(read.subspan(first, size), &rows[i * floats + width_]);
  }
  return tables_.push(header, keys, rows);
}

Result<std::vector<std::string>> WeightRows::initial_shards(std::span<const float> weights) const {
  LocalTables begin(tables_.setup());
  std::vector<float> row(width_);
  for (size_t first = 0; first < weights.size(); first += width_) {
    const auto part = weights.subspan(first, std::min(width_, weights.size() - first));
    std::ranges::fill(row, 0.0f);
    std::ranges::copy(part, row.begin());
    MUSTER_RETURN_IF_ERROR(begin.put(table_, first / width_, row));
  }
  return begin.save(0);
}

}  // namespace muster::train
