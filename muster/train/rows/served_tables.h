// Tables on parameter servers.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "muster/base/boot_clock.h"
#include "muster/ps/net/client.h"
#include "muster/train/rows/tables.h"

namespace muster::train {

class ServedTables final : public Tables {
 public:
  static Result<std::unique_ptr<Tables>> connect(const std::string& registry);

  const ps::TablesSetup& setup() const override { return client_->setup(); }
  bool is_shared() const override { return true; }
  Status read(uint32_t table, std::span<const uint64_t> keys, int64_t clock, float* rows,
              std::vector<int64_t>& clocks) override;
  Result<std::unique_ptr<RowsRead>> begin_read(uint32_t table, std::span<const uint64_t> keys,
                                               int64_t clock) override;
  Status push(const ps::PushHeader& header, std::span<const uint64_t> keys,
              std::span<const float> gradients) override {
    return client_->push(header, keys, gradients);
  }
  Status commit(uint64_t era, int64_t step) override { return client_->commit(era, step); }
  Status apply(uint64_t era, const ps::PlacedPushes& pushes) override {
    return client_->apply(era, pushes);
  }
  Status push_order(uint64_t era, std::string_view operation) override {
    return client_->push_order(era, operation);
  }
  Status wait() override { return client_->wait(); }
  Result<ps::OrderView> order(uint64_t worker, int64_t from, bool results) override {
    return client_->order(worker, from, results);
  }
  void set_progress(const std::function<void()>& progress) override { progress_ = progress; }
  Result<Hash128> hash(uint64_t era, int64_t clock) override {
    return client_->hash(era, clock, progress_);
  }
  Result<std::vector<std::string>> save(uint64_t era, int64_t clock) override {
    return client_->save(era, clock, progress_);
  }
  Status load(uint64_t era, std::span<const std::string> shards) override {
    return client_->load(era, shards, progress_);
  }

 private:
  class Read;
  ServedTables() = default;

  const BootClock clock_;
  std::unique_ptr<ps::Client> client_;
  std::function<void()> progress_;
};

}  // namespace muster::train
