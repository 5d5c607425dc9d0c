#include "muster/train/rows/sync_rows.h"

#include <algorithm>

namespace muster::train {

Status SyncRows::commit_again(int64_t step) {
  return step > 0 ? tables().commit(era(), step - 1) : Status();
}

Status SyncRows::read_rows(int64_t step, std::span<const uint64_t> keys, float* rows) {
  std::vector<int64_t> clocks;
  MUSTER_RETURN_IF_ERROR(
      tables().read(kRowTable, keys, step, rows, clocks, [&] { return commit_again(step); }));
  return check_clocks(step, clocks);
}

Status SyncRows::check_clocks(int64_t step, std::span<const int64_t> clocks) {
  if (tables().is_shared() && !clocks.empty() && std::ranges::max(clocks) != step) {
    overtaken_ = true;
    return Error(ErrorKind::kInternal,
                 "rows after step {} were asked for, and servers have gone on to step {}: this "
                 "worker was left behind",
                 step, std::ranges::max(clocks));
  }
  return {};
}

Status SyncRows::load(std::vector<std::string> shards, uint64_t era) {
  if (shards.empty()) shards.resize(tables().setup().shards);
  return tables().load(era, shards);
}

}  // namespace muster::train
