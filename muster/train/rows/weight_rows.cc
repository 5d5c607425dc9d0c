#include "muster/train/rows/weight_rows.h"

#include <algorithm>
#include <array>
#include <utility>

#include "muster/base/check.h"
#include "muster/train/rows/local_tables.h"

namespace muster::train {

WeightRows::WeightRows(Tables& tables, uint32_t table)
    : tables_(tables), table_(table), width_(tables.setup().tables[table].width) {}

std::vector<uint64_t> WeightRows::keys_of(std::span<const uint64_t> vectors, size_t weights) const {
  const size_t rows = rows_of(weights);
  std::vector<uint64_t> keys;
  keys.reserve(vectors.size() * rows);
  for (const uint64_t vector : vectors) {
    for (size_t row = 0; row < rows; ++row) keys.push_back(vector * rows + row);
  }
  return keys;
}

void WeightRows::copy_values(std::span<const float> rows, size_t vectors,
                             std::span<float> values) const {
  const size_t size = values.size() / vectors;
  const size_t held = rows_of(size) * width_;
  for (size_t i = 0; i < vectors; ++i) {
    std::ranges::copy(rows.subspan(i * held, size), values.subspan(i * size).begin());
  }
}

Status WeightRows::read(std::span<const uint64_t> vectors, int64_t clock, std::span<float> values,
                        std::vector<int64_t>& clocks) const {
  const auto keys = keys_of(vectors, values.size() / vectors.size());
  std::vector<float> rows(keys.size() * width_);
  MUSTER_RETURN_IF_ERROR(tables_.read(table_, keys, clock, rows.data(), clocks));
  copy_values(rows, vectors.size(), values);
  return {};
}

Result<bool> WeightRows::read_exactly(int64_t clock, std::span<float> weights,
                                      const std::function<Status()>& if_late) const {
  constexpr std::array<uint64_t, 1> kAlone = {kParameters};
  auto keys = keys_of(kAlone, weights.size());
  std::vector<float> rows(keys.size() * width_);
  MUSTER_TRY(const auto read, tables_.begin_read(table_, keys, clock));
  MUSTER_TRY(const bool exact, read->finish(rows.data(), if_late));
  if (exact) copy_values(rows, 1, weights);
  return exact;
}

Status WeightRows::push(ps::PushHeader header, std::span<const uint64_t> vectors,
                        std::span<const float> gradients, std::span<const float> read) const {
  const size_t floats = ps::floats_of(header.kind, width_);
  MUSTER_CHECK(floats == width_ || read.size() == gradients.size(), "weights for each gradient");
  header.table = table_;
  const size_t size = gradients.size() / vectors.size();
  const auto keys = keys_of(vectors, size);
  std::vector<float> rows(keys.size() * floats, 0.0f);
  for (size_t i = 0; i < keys.size(); ++i) {
    const size_t vector = i / rows_of(size);
    const size_t first = i % rows_of(size) * width_;
    const size_t some = std::min(width_, size - first);
    const auto to = std::span(rows).subspan(i * floats, floats);
    std::ranges::copy(gradients.subspan(vector * size + first, some), to.begin());
    if (floats == width_) continue;
    std::ranges::copy(read.subspan(vector * size + first, some), to.subspan(width_).begin());
  }
  return tables_.push(header, keys, rows);
}

Result<std::vector<std::string>> WeightRows::initial_shards(std::span<const uint64_t> vectors,
                                                            std::span<const float> weights) const {
  LocalTables begin(tables_.setup());
  const auto keys = keys_of(vectors, weights.size());
  std::vector<float> row(width_);
  for (size_t i = 0; i < keys.size(); ++i) {
    const size_t first = i % rows_of(weights.size()) * width_;
    std::ranges::fill(row, 0.0f);
    std::ranges::copy(weights.subspan(first, std::min(width_, weights.size() - first)),
                      row.begin());
    MUSTER_RETURN_IF_ERROR(begin.put(table_, keys[i], row));
  }
  return begin.save(0, 0);
}

}  // namespace muster::train
