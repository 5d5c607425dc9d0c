// Rows of a job in lockstep: each step sees all updates of the step before.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muster/train/rows/rows_base.h"

namespace muster::train {

class SyncRows final : public RowsBase {
 public:
  explicit SyncRows(std::unique_ptr<Tables> tables) : RowsBase(std::move(tables)) {}

  Status commit(int64_t step) override { return tables().commit(era(), step); }
  Status load(std::vector<std::string> shards, uint64_t era) override;

 private:
  int64_t clock_of(int64_t step) const override { return step; }
  Status read_rows(int64_t step, std::span<const uint64_t> keys, float* rows) override;
  ps::PushHeader header_of(int64_t step, int lane) const override {
    return {.kind = ps::PushKind::kAdd, .lane = static_cast<uint16_t>(lane), .step = step};
  }
};

}  // namespace muster::train
