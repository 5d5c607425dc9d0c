// Tables that several workers, which are threads of a test, have in common. A read waits for its
// clock, as with servers.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "muster/train/rows/local_tables.h"
#include "muster/train/session.h"

namespace muster::train {

class SharedTables final : public Tables {
 public:
  explicit SharedTables(std::shared_ptr<LocalTables> tables) : tables_(std::move(tables)) {}
  const ps::TablesSetup& setup() const override { return tables_->setup(); }
  bool is_shared() const override { return true; }
  Status read(uint32_t table, std::span<const uint64_t> keys, int64_t clock, float* rows,
              std::vector<int64_t>& clocks, const std::function<Status()>& if_late) override {
    constexpr int kUsual = 100;
    for (int i = 0;; ++i) {
      MUSTER_RETURN_IF_ERROR(tables_->read(table, keys, clock, rows, clocks, {}));
      if (std::ranges::all_of(clocks, [&](int64_t one) { return one >= clock; })) return {};
      if (i == kUsual && if_late) MUSTER_RETURN_IF_ERROR(if_late());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
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

// `registries` for workers that share these.
inline Registries sharing(Registries registries, const std::shared_ptr<LocalTables>& tables) {
  registries.tables = [tables](const config::Job&) -> Result<std::unique_ptr<Tables>> {
    return std::unique_ptr<Tables>(std::make_unique<SharedTables>(tables));
  };
  return registries;
}

}  // namespace muster::train
