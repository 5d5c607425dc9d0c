// Rows in the memory of this process: for a job with one worker, and for `muster eval` and others
// that only look at a checkpoint. The same tables, sums and updates as on parameter servers, so the
// same bits.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "muster/config/job.h"
#include "muster/ps/net/control.h"
#include "muster/ps/slabs.h"
#include "muster/train/rows/row_batch.h"

namespace muster::train {

class LocalRows final : public RowsBase {
 public:
  explicit LocalRows(const config::Job& job);

  Status wait() override { return {}; }
  Status commit(int64_t step) override;
  Result<Hash128> hash(int64_t step) override;
  Result<std::vector<std::string>> save(int64_t step) override;
  Status load(std::vector<std::string> shards, uint64_t era) override;

 private:
  const ps::TableOptions& options() const override { return setup_.tables[kRowTable]; }
  Status read_rows(int64_t step, std::span<const uint64_t> keys, float* rows) override;
  Status add_rows(const ps::PushHeader& header, std::span<const uint64_t> keys,
                  std::span<const float> gradients) override;

  const ps::TablesSetup setup_;
  std::mutex mutex_;  // lanes read and add at the same time; all below
  ps::Slabs slabs_;
  std::vector<std::unique_ptr<ps::TableData>> shards_;
};

}  // namespace muster::train
