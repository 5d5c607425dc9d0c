#include "muster/train/rows/replay_tables.h"

#include <algorithm>

#include "muster/ps/by_shard.h"

namespace muster::train {

ReplayTables::ReplayTables(ps::TablesSetup setup, int64_t behind)
    : LocalTables(std::move(setup)), behind_(behind) {
  // If the update has changed it too, what it was before is kept already.
  watch_evictions(
      [this](uint32_t table, const ps::Row& row) { keep_row(table, row.key, row.values()); });
}

void ReplayTables::keep_row(uint32_t table, uint64_t key, const float* weights) {
  OldRows& old = changing_[table];
  if (!old.places.emplace(key, old.rows.size()).second) return;
  old.rows.insert(old.rows.end(), weights, weights + setup().tables[table].width);
}

const float* ReplayTables::old_row(uint32_t table, uint64_t key, int64_t version) const {
  const auto first = updates_ - static_cast<int64_t>(kept_.size());
  for (int64_t update = version; update < updates_; ++update) {
    const OldRows& old = kept_[static_cast<size_t>(update - first)][table];
    const auto found = old.places.find(key);
    if (found != old.places.end()) return old.rows.data() + found->second;
  }
  return nullptr;
}

Status ReplayTables::read(uint32_t table, std::span<const uint64_t> keys, int64_t clock,
                          float* rows, std::vector<int64_t>& clocks,
                          const std::function<Status()>& if_late) {
  MUSTER_RETURN_IF_ERROR(LocalTables::read(table, keys, clock, rows, clocks, if_late));
  if (record_ == nullptr) return {};
  const auto differs = [&](std::string_view what) {
    return Error(ErrorKind::kCheckpoint,
                 "the record does not belong to this job: task {} {}; were the job file or the "
                 "data changed?",
                 record_->task, what);
  };
  if (reads_ == record_->versions.size()) return differs("reads more often than in the run");
  const auto& versions = record_->versions[reads_++];
  if (versions.size() != clocks.size()) return differs("reads other rows than in the run");
  const auto first = updates_ - static_cast<int64_t>(kept_.size());
  for (const int64_t version : versions) {
    if (version < first || version > updates_) return differs("reads what there was never");
  }
  const size_t width = setup().tables[table].width;
  size_t part = 0;
  ps::ByShard(keys, setup().shards).for_each([&](ps::ShardNumber /*shard*/, auto places) {
    const int64_t version = versions[part++];
    if (version == updates_) return;
    for (const uint32_t place : places) {
      const float* const old = old_row(table, keys[place], version);
      if (old != nullptr) std::copy_n(old, width, rows + place * width);
    }
  });
  clocks = versions;
  return {};
}

Status ReplayTables::push(const ps::PushHeader& header, std::span<const uint64_t> keys,
                          std::span<const float> gradients) {
  if (header.kind == ps::PushKind::kStage) {
    staged_[static_cast<uint64_t>(header.step)].emplace_back(
        header.table, std::vector<uint64_t>(keys.begin(), keys.end()));
  }
  return LocalTables::push(header, keys, gradients);
}

Status ReplayTables::keep_rows(uint64_t ticket) {
  changing_.resize(setup().tables.size());
  const auto staged = staged_.find(ticket);
  if (staged == staged_.end()) return {};
  std::vector<int64_t> clocks;
  for (const auto& [table, keys] : staged->second) {
    const size_t width = setup().tables[table].width;
    std::vector<float> now(keys.size() * width);
    MUSTER_RETURN_IF_ERROR(LocalTables::read(table, keys, 0, now.data(), clocks, {}));
    for (size_t i = 0; i < keys.size(); ++i) keep_row(table, keys[i], &now[i * width]);
  }
  staged_.erase(staged);
  return {};
}

Status ReplayTables::apply(uint64_t era, const ps::PlacedPushes& pushes) {
  for (size_t i = 0; i < pushes.placed.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(keep_rows(pushes.placed[i].ticket));
    auto one = pushes;
    one.first = pushes.first + static_cast<int64_t>(i);
    one.placed = {pushes.placed[i]};
    MUSTER_RETURN_IF_ERROR(LocalTables::apply(era, one));
    if (++in_update_ < pushes.pushes) continue;
    in_update_ = 0;
    kept_.push_back(std::exchange(changing_, {}));
    if (static_cast<int64_t>(kept_.size()) > behind_) kept_.pop_front();
    ++updates_;
  }
  return {};
}

}  // namespace muster::train
