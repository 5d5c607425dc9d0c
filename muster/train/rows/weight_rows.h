// The model's own parameters as rows of a table (sync.strategy: server). The table has vectors of
// their size, one after the other, each cut into rows of equal width; what is missing of its last
// row is zeros. The first vector is the parameters; there are others with sync.mode: easgd
// (task_rows.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "muster/base/result.h"
#include "muster/train/rows/tables.h"

namespace muster::train {

// Safe for concurrent use, as far as `tables` is. Vectors are given by their numbers, which ascend;
// their values, all of one size, one after the other.
class WeightRows {
 public:
  // The number of that vector.
  static constexpr uint64_t kParameters = 0;

  // `tables` must outlive it.
  WeightRows(Tables& tables, uint32_t table);

  // Tables::read.
  Status read(std::span<const uint64_t> vectors, int64_t clock, std::span<float> values,
              std::vector<int64_t>& clocks) const;
  // The parameters as they are when the clock is exactly there; see RowsRead::finish.
  Result<bool> read_exactly(int64_t clock, std::span<float> weights,
                            const std::function<Status()>& if_late) const;
  // Tables::push. `read`: the values that the gradients were computed from, if the header is of a
  // kind that has them.
  Status push(ps::PushHeader header, std::span<const uint64_t> vectors,
              std::span<const float> gradients, std::span<const float> read) const;
  // What tables would have in which each of these vectors begins with these weights.
  Result<std::vector<std::string>> initial_shards(std::span<const uint64_t> vectors,
                                                  std::span<const float> weights) const;

 private:
  // Of one vector of so many weights.
  size_t rows_of(size_t weights) const { return (weights + width_ - 1) / width_; }
  std::vector<uint64_t> keys_of(std::span<const uint64_t> vectors, size_t weights) const;
  // From `rows`, which are those of some vectors.
  void copy_values(std::span<const float> rows, size_t vectors, std::span<float> values) const;

  Tables& tables_;
  const uint32_t table_;
  const size_t width_;
};

}  // namespace muster::train
