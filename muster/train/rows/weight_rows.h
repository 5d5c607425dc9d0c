// The model's own parameters as rows of a table (sync.strategy: server): a flat buffer, cut into
// rows of equal width; what is missing of the last one is zeros.
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

// Safe for concurrent use, as far as `tables` is.
class WeightRows {
 public:
  // `tables` must outlive it.
  WeightRows(Tables& tables, uint32_t table);

  // Tables::read, of all of them.
  Status read(int64_t clock, std::span<float> weights, std::vector<int64_t>& clocks,
              const std::function<Status()>& if_late) const;
  // Tables::push, of all of them. `read`: the weights that the gradient was computed from, if the
  // header is of a kind that has them.
  Status push(ps::PushHeader header, std::span<const float> gradient,
              std::span<const float> read) const;
  // What tables would have that begin with these weights.
  Result<std::vector<std::string>> initial_shards(std::span<const float> weights) const;

 private:
  std::vector<uint64_t> keys_of(size_t weights) const;

  Tables& tables_;
  const uint32_t table_;
  const size_t width_;
};

}  // namespace muster::train
