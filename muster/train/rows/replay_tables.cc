#include "muster/train/rows/replay_tables.h"

#include <string_view>
#include <utility>

namespace muster::train {
namespace {

ps::TablesSetup with_versions(ps::TablesSetup setup, int64_t behind) {
  for (auto& table : setup.tables) table.versions = static_cast<uint32_t>(behind);
  return setup;
}

}  // namespace

ReplayTables::ReplayTables(ps::TablesSetup setup, int64_t behind)
    : LocalTables(with_versions(std::move(setup), behind)) {}

Status ReplayTables::read(uint32_t table, std::span<const uint64_t> keys, int64_t clock,
                          float* rows, std::vector<int64_t>& clocks) {
  if (record_ == nullptr) return LocalTables::read(table, keys, clock, rows, clocks);
  const auto differs = [&](std::string_view what) {
    return Error(ErrorKind::kCheckpoint,
                 "the record does not belong to this job: task {} {}; were the job file or the "
                 "data changed?",
                 record_->task, what);
  };
  if (reads_ == record_->versions.size()) return differs("reads more often than in the run");
  const auto& versions = record_->versions[reads_++];
  size_t part = 0;
  const auto version = [&](const ps::TableData& /*shard*/) -> int64_t {
    return part < versions.size() ? versions[part++] : -1;
  };
  clocks = read_versions(table, keys, version, rows);
  if (clocks.size() != versions.size()) return differs("reads other rows than in the run");
  if (clocks != versions) return differs("reads what there was never");
  return {};
}

}  // namespace muster::train
