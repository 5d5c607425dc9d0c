// Tables in the memory of this process: for a job with one worker, and for `muster eval` and others
// that only look at a checkpoint.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "muster/ps/slabs.h"
#include "muster/train/rows/tables.h"

namespace muster::train {

class LocalTables : public Tables {
 public:
  explicit LocalTables(ps::TablesSetup setup);

  const ps::TablesSetup& setup() const final { return setup_; }
  bool is_shared() const override { return false; }
  Status read(uint32_t table, std::span<const uint64_t> keys, int64_t clock, float* rows,
              std::vector<int64_t>& clocks) override;
  Result<std::unique_ptr<RowsRead>> begin_read(uint32_t table, std::span<const uint64_t> keys,
                                               int64_t clock) override;
  Status push(const ps::PushHeader& header, std::span<const uint64_t> keys,
              std::span<const float> gradients) override;
  Status commit(uint64_t era, int64_t step) override;
  Status apply(uint64_t era, const ps::PlacedPushes& pushes) override;
  Status push_order(uint64_t era, std::string_view operation) override;
  Status wait() override { return {}; }
  Result<ps::OrderView> order(uint64_t worker, int64_t from, bool results) override;
  Result<Hash128> hash(uint64_t era, int64_t clock) override;
  Result<std::vector<std::string>> save(uint64_t era, int64_t clock) override;
  Status load(uint64_t era, std::span<const std::string> shards) override;

  // A row that is not there yet, with its weights and the first state of its optimizer.
  Status put(uint32_t table, uint64_t key, std::span<const float> weights);
  // The record of pushes (ps/push_record.h).
  std::string record();

 protected:
  Status apply_to_all(std::string_view push);
  // `version`: of each shard that has keys of these, one after the other; what it gives is read, if
  // it is known, and else what there is now. Returns what was read.
  using VersionOf = std::function<int64_t(const ps::TableData& shard)>;
  std::vector<int64_t> read_versions(uint32_t table, std::span<const uint64_t> keys,
                                     const VersionOf& version, float* rows);

 private:
  class Read;

  const ps::TablesSetup setup_;
  std::mutex mutex_;  // lanes read and add at the same time; all below
  ps::Slabs slabs_;
  std::vector<std::unique_ptr<ps::TableData>> shards_;
};

}  // namespace muster::train
