// Rows of a job in lockstep: each step sees all updates of the step before.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muster/train/rows/rows_base.h"

namespace muster::train {

class SyncRows : public RowsBase {
 public:
  explicit SyncRows(std::unique_ptr<Tables> tables) : RowsBase(std::move(tables)) {}

  Status commit(int64_t step) override { return tables().commit(era(), step); }
  Status load(std::vector<std::string> shards, uint64_t era) override;
  // Whether a read since the last call has failed because the others have gone on without this
  // worker.
  bool take_overtaken() { return overtaken_.exchange(false); }

 protected:
  // Whoever had to tell the servers of the last commit may be lost. All who read know of it.
  Status commit_again(int64_t step);
  // Of a read after so many steps.
  Status check_clocks(int64_t step, std::span<const int64_t> clocks);
  ps::PushHeader header_of(int64_t step, int lane) const override {
    return {.kind = ps::PushKind::kAdd, .lane = static_cast<uint16_t>(lane), .step = step};
  }

 private:
  int64_t clock_of(int64_t step) const override { return step; }
  Status read_rows(int64_t step, std::span<const uint64_t> keys, float* rows) override;

  std::atomic<bool> overtaken_{false};  // lanes read at the same time
};

}  // namespace muster::train
