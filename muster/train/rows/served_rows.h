// Rows on parameter servers.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "muster/base/boot_clock.h"
#include "muster/ps/net/client.h"
#include "muster/train/rows/row_batch.h"

namespace muster::train {

class ServedRows final : public RowsBase {
 public:
  static Result<std::unique_ptr<StepRows>> connect(const std::string& registry);

  Status wait() override { return client_->wait(); }
  Status commit(int64_t step) override { return client_->commit(era(), step); }
  Result<Hash128> hash(int64_t step) override { return client_->hash(step); }
  Result<std::vector<std::string>> save(int64_t step) override { return client_->save(step); }
  Status load(std::vector<std::string> shards, uint64_t era) override;

 private:
  ServedRows() = default;
  const ps::TableOptions& options() const override { return client_->setup().tables[kRowTable]; }
  Status read_rows(int64_t step, std::span<const uint64_t> keys, float* rows) override;
  Status add_rows(const ps::PushHeader& header, std::span<const uint64_t> keys,
                  std::span<const float> gradients) override {
    return client_->push(header, keys, gradients);
  }

  const BootClock clock_;
  std::unique_ptr<ps::Client> client_;
};

}  // namespace muster::train
