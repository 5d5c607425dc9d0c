// Tables in this process that several workers, which are threads, share: for tests.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "muster/train/rows/local_tables.h"
#include "muster/train/session.h"

namespace muster::train {

// What all workers have in common.
class SharedTables : public Tables {
 public:
  explicit SharedTables(std::shared_ptr<LocalTables> tables) : tables_(std::move(tables)) {}
  const ps::TablesSetup& setup() const override { return tables_->setup(); }
  bool is_shared() const override { return true; }
  Status read(uint32_t table, std::span<const uint64_t> keys, int64_t clock, float* rows,
              std::vector<int64_t>& clocks) override {
    while (true) {
      MUSTER_RETURN_IF_ERROR(tables_->read(table, keys, clock, rows, clocks));
      if (std::ranges::all_of(clocks, [&](int64_t at) { return at >= clock; })) return {};
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  Result<std::unique_ptr<RowsRead>> begin_read(uint32_t table, std::span<const uint64_t> keys,
                                               int64_t clock) override {
    return std::unique_ptr<RowsRead>(std::make_unique<Read>(*this, table, keys, clock));
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
  Result<Hash128> hash(uint64_t era, int64_t clock) override { return tables_->hash(era, clock); }
  Result<std::vector<std::string>> save(uint64_t era, int64_t clock) override {
    return tables_->save(era, clock);
  }
  Status load(uint64_t era, std::span<const std::string> shards) override {
    return tables_->load(era, shards);
  }

 private:
  // Read at once if the clock is there, as servers do, and else when they are wanted.
  class Read final : public RowsRead {
   public:
    Read(SharedTables& tables, uint32_t table, std::span<const uint64_t> keys, int64_t clock)
        : tables_(tables), table_(table), keys_(keys.begin(), keys.end()), clock_(clock) {
      rows_.resize(keys_.size() * tables_.setup().tables[table_].width);
      std::vector<int64_t> clocks;
      const auto now = tables_.tables_->read(table_, keys_, clock_, rows_.data(), clocks);
      if (!now.ok()) return;
      if (std::ranges::all_of(clocks, [&](int64_t at) { return at >= clock_; })) exact_ = read();
    }
    Result<bool> finish(float* rows, const std::function<Status()>& /*if_late*/) override {
      if (!exact_) exact_ = read();
      std::ranges::copy(rows_, rows);
      return *exact_;
    }

   private:
    Result<bool> read() {
      std::vector<int64_t> clocks;
      MUSTER_RETURN_IF_ERROR(tables_.read(table_, keys_, clock_, rows_.data(), clocks));
      const int64_t known = clock_ + tables_.setup().tables[table_].versions;
      if (std::ranges::any_of(clocks, [&](int64_t at) { return at > known; })) return false;
      MUSTER_TRY(const auto then, tables_.tables_->begin_read(table_, keys_, clock_));
      return then->finish(rows_.data(), {});
    }

    SharedTables& tables_;
    const uint32_t table_;
    const std::vector<uint64_t> keys_;
    const int64_t clock_;
    std::vector<float> rows_;
    std::optional<Result<bool>> exact_;
  };

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
