// Tables in this process that several workers, which are threads, share: for tests.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "muster/train/rows/local_tables.h"

namespace muster::train {

// What all workers have in common.
class SharedTables : public Tables {
 public:
  explicit SharedTables(std::shared_ptr<LocalTables> tables) : tables_(std::move(tables)) {}
  const ps::TablesSetup& setup() const override { return tables_->setup(); }
  bool is_shared() const override { return true; }
  Status read(uint32_t table, std::span<const uint64_t> keys, int64_t clock, float* rows,
              std::vector<int64_t>& clocks, const std::function<Status()>& late) override {
    while (true) {
      MUSTER_RETURN_IF_ERROR(tables_->read(table, keys, clock, rows, clocks, late));
      if (std::ranges::all_of(clocks, [&](int64_t at) { return at >= clock; })) return {};
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  Status push(const ps::PushHeader& header, std::span<const uint64_t> keys,
              std::span<const float> gradients) override {
    return tables_->push(header, keys, gradients);
  }
  Status commit(uint64_t era, int64_t step) override { return tables_->commit(era, step); }
  Status apply(uint64_t era, const ps::PlacedPushes& pushes) override {
    return tables_->apply(era, pushes);
  }
  Status push_order(uint64_t era, std::string_view operation) override {
    return tables_->push_order(era, operation);
  }
  Status wait() override { return tables_->wait(); }
  Result<ps::OrderView> order(uint64_t worker, int64_t from, bool results) override {
    return tables_->order(worker, from, results);
  }
  Result<Hash128> hash(int64_t clock) override { return tables_->hash(clock); }
  Result<std::vector<std::string>> save(int64_t clock) override { return tables_->save(clock); }
  Status load(uint64_t era, std::span<const std::string> shards) override {
    return tables_->load(era, shards);
  }

 private:
  std::shared_ptr<LocalTables> tables_;
};

}  // namespace muster::train
