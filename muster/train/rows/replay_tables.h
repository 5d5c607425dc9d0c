// Tables for a replay: each task reads rows as they were when it read them in the run.
#pragma once

#include <cstdint>
#include <span>
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
              std::vector<int64_t>& clocks) override;

 private:
  const ps::PushRecord* record_ = nullptr;
  size_t reads_ = 0;
};

}  // namespace muster::train
