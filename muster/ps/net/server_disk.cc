// The part of Server that is about rows on disk.
#include <utility>

#include <fmt/format.h>

#include "muster/ps/net/server.h"

namespace muster::ps {

using namespace std::chrono_literals;

namespace {

constexpr Duration kReport = 60s;  // how often the log says where rows are, if some are on disk

}  // namespace

Status Server::begin_disk() {
  if (!options_.open_disk) return {};
  MUSTER_TRY(disk_, options_.open_disk(self_));
  cold_.emplace(*disk_);
  fetcher_.emplace(*disk_, [this] { network_->wake(); });
  next_report_ = clock_.now() + kReport;
  return {};
}

void Server::take_fetched() {
  if (!fetcher_) return;
  auto came = fetcher_->take();
  if (came.empty()) return;
  for (auto& [shard, held] : held_) held.seen = {};  // some may have waited for it
  for (auto& fetched : came) {
    cold_->note(std::move(fetched.status));
    data_[fetched.part.shard]->table(fetched.part.table).arrive(fetched);
  }
}

void Server::fetch_for(ShardNumber shard, const Push& push) {
  if (fetcher_ && shard < data_.size()) data_[shard]->fetch(*push.bytes, *fetcher_);
}

void Server::report_rows(Moment now) {
  if (!cold_ || now < next_report_) return;
  next_report_ = now + kReport;
  const auto counts = cold_->counts();
  if (counts.on_disk == 0) return;
  const ColdUse use = disk_->use();
  tell(
      fmt::format("{} rows are in memory and {} on disk ({} MB there, and {} MB of memory for it); "
                  "{} were written, {} read ahead, and {} looked up late",
                  counts.in_memory, counts.on_disk, use.disk >> 20, use.memory >> 20,
                  counts.written, counts.fetched, counts.late));
}

}  // namespace muster::ps
