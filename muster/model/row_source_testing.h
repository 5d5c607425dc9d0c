// Rows in memory, for this folder's tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "muster/base/random.h"
#include "muster/model/rows.h"

namespace muster::model::testing {

// Remembers what it was asked. Rows start with numbers that follow from their key, and never change
// by themselves. Not for several threads.
class MemoryRows final : public RowSource {
 public:
  struct Call {
    int64_t step;
    int lane;
    std::vector<uint64_t> keys;
  };

  explicit MemoryRows(int64_t width) : width_(width) {}

  int64_t width() const override { return width_; }

  void read(int64_t step, int lane, std::span<const uint64_t> keys, float* rows) override {
    reads.push_back({step, lane, {keys.begin(), keys.end()}});
    for (const uint64_t key : keys) rows = std::ranges::copy(row(key), rows).out;
  }

  void add(int64_t step, int lane, std::span<const uint64_t> keys,
           const float* gradients) override {
    adds.push_back({step, lane, {keys.begin(), keys.end()}});
    for (const uint64_t key : keys) {
      gradients_of[key].assign(gradients, gradients + width_);
      gradients += width_;
    }
  }

  std::vector<float>& row(uint64_t key) {
    auto& values = rows_[key];
    RandomStream random(1, Purpose::kUser, key);
    while (values.size() < static_cast<size_t>(width_)) values.push_back(random.uniform() - 0.5F);
    return values;
  }

  std::vector<Call> reads;
  std::vector<Call> adds;
  std::map<uint64_t, std::vector<float>> gradients_of;  // of the last add() of a key

 private:
  int64_t width_;
  std::map<uint64_t, std::vector<float>> rows_;
};

}  // namespace muster::model::testing
