// Rows of a job in lockstep: each step sees all updates of the step before; or, with
// tables.staleness s, all but those of the last s steps, whoever reads them and whenever. So rows
// of a step can be asked for while the steps before are computed, and the bits are still the same.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muster/train/rows/rows_base.h"

namespace muster::train {

class SyncRows : public RowsBase {
 public:
  explicit SyncRows(std::unique_ptr<Tables> tables) : RowsBase(std::move(tables)) {}

  bool wants_prefetch() const override { return tables().is_shared(); }
  void set_era(uint64_t era) override;
  void prefetch(int64_t step, int lane, std::span<const uint64_t> keys) override;
  Status commit(int64_t step) override { return tables().commit(era(), step); }
  Status load(std::vector<std::string> shards, uint64_t era) override;

 protected:
  // Commits the last step before `version`, and those up to `step`, again. The worker that had to
  // tell the servers of them may be lost, and every worker that reads knows of these commits.
  Status commit_again(int64_t step, int64_t version);
  // Of a read of this version that servers do not have any more.
  Error left_behind(int64_t version);
  ps::PushHeader header_of(int64_t step, int lane) const override {
    return {.kind = ps::PushKind::kAdd, .lane = static_cast<uint16_t>(lane), .step = step};
  }

 private:
  struct Prefetched {
    std::vector<uint64_t> keys;
    std::unique_ptr<RowsRead> rows;
  };
  // After how many steps rows are as this one is trained with them.
  int64_t version_of(int64_t step) const;
  int64_t clock_of(int64_t step) const override { return step; }
  Status read_rows(int64_t step, int lane, std::span<const uint64_t> keys, float* rows) override;
  Prefetched take_prefetched(int64_t step, int lane);
  void forget_prefetched();

  std::mutex mutex_;                                          // these
  std::map<std::pair<int64_t, int>, Prefetched> prefetched_;  // by step and lane
  uint64_t forgotten_ = 0;  // how often: what was asked for before is of no use
};

}  // namespace muster::train
