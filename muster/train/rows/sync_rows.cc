#include "muster/train/rows/sync_rows.h"

#include <algorithm>

namespace muster::train {

namespace {
constexpr int64_t kMostAhead = 16;  // steps whose rows are kept
}  // namespace

int64_t SyncRows::version_of(int64_t step) const {
  return std::max<int64_t>(step - options().versions, 0);
}

void SyncRows::prefetch(int64_t step, int lane, std::span<const uint64_t> keys) {
  if (keys.empty() || is_rehearsing()) return;
  uint64_t forgotten = 0;
  {
    const std::lock_guard lock(mutex_);
    forgotten = forgotten_;
  }
  auto rows = tables().begin_read(kRowTable, keys, version_of(step));
  if (!rows.ok()) return;  // whoever reads them says why
  const std::lock_guard lock(mutex_);
  if (forgotten != forgotten_) return;
  // Of lanes that others have computed, or of a model that reads none.
  prefetched_.erase(prefetched_.begin(), prefetched_.lower_bound({step - kMostAhead, 0}));
  prefetched_[{step, lane}] = {{keys.begin(), keys.end()}, *std::move(rows)};
}

void SyncRows::forget_prefetched() {
  const std::lock_guard lock(mutex_);
  prefetched_.clear();
  ++forgotten_;
}

// In another era rows may be others, after as many steps.
void SyncRows::set_era(uint64_t era) {
  if (era != this->era()) forget_prefetched();
  RowsBase::set_era(era);
}

SyncRows::Prefetched SyncRows::take_prefetched(int64_t step, int lane) {
  const std::lock_guard lock(mutex_);
  prefetched_.erase(prefetched_.begin(), prefetched_.lower_bound({step, 0}));
  const auto found = prefetched_.find({step, lane});
  if (found == prefetched_.end()) return {};
  auto taken = std::move(found->second);
  prefetched_.erase(found);
  return taken;
}

Status SyncRows::commit_again(int64_t step, int64_t version) {
  for (int64_t at = std::max<int64_t>(version - 1, 0); at < step; ++at) {
    MUSTER_RETURN_IF_ERROR(tables().commit(era(), at));
  }
  return {};
}

Status SyncRows::read_rows(int64_t step, int lane, std::span<const uint64_t> keys, float* rows) {
  const int64_t version = lane == kNoLane ? step : version_of(step);
  const auto if_late = [&] { return commit_again(step, version); };
  if (lane != kNoLane) {
    const auto ahead = take_prefetched(step, lane);
    if (ahead.rows != nullptr && std::ranges::equal(ahead.keys, keys)) {
      MUSTER_TRY(const bool exact, ahead.rows->finish(rows, if_late));
      if (exact) return {};
    }
  }
  MUSTER_TRY(const auto read, tables().begin_read(kRowTable, keys, version));
  MUSTER_TRY(const bool exact, read->finish(rows, if_late));
  if (exact) return {};
  return left_behind(version);
}

Error SyncRows::left_behind(int64_t version) {
  note_overtaken();
  return Error(ErrorKind::kInternal,
               "rows after step {} were asked for, and servers have gone on: this worker was left "
               "behind",
               version);
}

Status SyncRows::load(std::vector<std::string> shards, uint64_t era) {
  if (shards.empty()) shards.resize(tables().setup().shards);
  auto loaded = tables().load(era, shards);
  forget_prefetched();
  return loaded;
}

}  // namespace muster::train
