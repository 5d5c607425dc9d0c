#include "muster/train/rows/served_rows.h"

#include <algorithm>
#include <utility>

namespace muster::train {

using namespace std::chrono_literals;

namespace {
constexpr Duration kUsual = 200ms;  // longer than a server takes to be replaced
}  // namespace

Result<std::unique_ptr<StepRows>> ServedRows::connect(const std::string& registry) {
  std::unique_ptr<ServedRows> rows(new ServedRows);
  MUSTER_TRY(rows->client_, ps::Client::connect(registry, rows->clock_, 30s));
  return std::unique_ptr<StepRows>(std::move(rows));
}

Status ServedRows::read_rows(int64_t step, std::span<const uint64_t> keys, float* rows) {
  MUSTER_TRY(const auto read, client_->begin_read(kRowTable, keys, step));
  MUSTER_TRY(const bool there, client_->finish_within(*read, kUsual));
  if (!there && step > 0) {
    // Whoever had to tell the servers of the last commit may be lost. All who read know of it.
    MUSTER_RETURN_IF_ERROR(client_->commit(era(), step - 1));
  }
  MUSTER_RETURN_IF_ERROR(client_->finish(*read));
  if (!keys.empty() && read->most_clock() != step) {
    return Error(ErrorKind::kInternal,
                 "rows after step {} were asked for, and servers have gone on to step {}: this "
                 "worker was left behind",
                 step, read->most_clock());
  }
  std::ranges::copy(read->weights(), rows);
  return {};
}

Status ServedRows::load(std::vector<std::string> shards, uint64_t era) {
  if (shards.empty()) shards.resize(client_->setup().shards);
  return client_->load(era, shards);
}

}  // namespace muster::train
