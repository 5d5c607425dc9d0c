// Tables for a replay: each task reads rows as they were when it read them in the run.
//
// Rows as they were before each of the last updates are kept, as far back as any task looks: those
// that the update changed, and those that were evicted with it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "muster/ps/push_record.h"
#include "muster/train/rows/local_tables.h"

namespace muster::train {

// One thread uses it.
class ReplayTables final : public LocalTables {
 public:
  // `behind`: how many updates back a task may look.
  ReplayTables(ps::TablesSetup setup, int64_t behind);

  // What is read from now on is as this record says. It must outlive that.
  void read_as(const ps::PushRecord& record) {
    record_ = &record;
    reads_ = 0;
  }
  // As it is.
  void read_now() { record_ = nullptr; }

  Status read(uint32_t table, std::span<const uint64_t> keys, int64_t clock, float* rows,
              std::vector<int64_t>& clocks, const std::function<Status()>& if_late) override;
  Status push(const ps::PushHeader& header, std::span<const uint64_t> keys,
              std::span<const float> gradients) override;
  Status apply(uint64_t era, const ps::PlacedPushes& pushes) override;

 private:
  struct OldRows {
    std::unordered_map<uint64_t, size_t> places;  // by key: in `rows`
    std::vector<float> rows;
  };
  using OldTables = std::vector<OldRows>;  // by table

  Status keep_rows(uint64_t ticket);
  void keep_row(uint32_t table, uint64_t key, const float* weights);
  // A row of this table as it was after `version` updates, if it has changed since.
  const float* old_row(uint32_t table, uint64_t key, int64_t version) const;

  const int64_t behind_;
  const ps::PushRecord* record_ = nullptr;
  size_t reads_ = 0;
  int64_t updates_ = 0;
  // By ticket: which rows it changes.
  std::map<uint64_t, std::vector<std::pair<uint32_t, std::vector<uint64_t>>>> staged_;
  OldTables changing_;          // by the update that is not complete
  int64_t in_update_ = 0;       // pushes of it
  std::deque<OldTables> kept_;  // the last one is that of the last update
};

}  // namespace muster::train
