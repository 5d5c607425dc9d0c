#include "muster/train/rows/served_tables.h"

#include <algorithm>

#include "muster/ps/net/job_setup.h"
#include "muster/train/rows/local_tables.h"

namespace muster::train {

using namespace std::chrono_literals;

namespace {
constexpr Duration kUsual = 200ms;  // longer than a server takes to be replaced
}  // namespace

Result<std::unique_ptr<Tables>> open_tables(const config::Job& job, const std::string& registry) {
  if (!registry.empty()) return ServedTables::connect(registry);
  return std::unique_ptr<Tables>(std::make_unique<LocalTables>(ps::setup_of(job)));
}

Result<std::unique_ptr<Tables>> ServedTables::connect(const std::string& registry) {
  std::unique_ptr<ServedTables> tables(new ServedTables);
  MUSTER_TRY(tables->client_, ps::Client::connect(registry, tables->clock_, 30s));
  return std::unique_ptr<Tables>(std::move(tables));
}

Status ServedTables::read(uint32_t table, std::span<const uint64_t> keys, int64_t clock,
                          float* rows, std::vector<int64_t>& clocks) {
  MUSTER_TRY(const auto read, client_->begin_read(table, keys, clock));
  MUSTER_RETURN_IF_ERROR(client_->finish(*read));
  std::ranges::copy(read->weights(), rows);
  clocks = read->clocks();
  return {};
}

class ServedTables::Read final : public RowsRead {
 public:
  Read(ps::Client& client, std::shared_ptr<ps::RowRead> read, int64_t clock)
      : client_(client), read_(std::move(read)), clock_(clock) {}
  Result<bool> finish(float* rows, const std::function<Status()>& if_late) override {
    MUSTER_TRY(const bool there, client_.finish_within(*read_, kUsual));
    if (!there && if_late) MUSTER_RETURN_IF_ERROR(if_late());
    MUSTER_RETURN_IF_ERROR(client_.finish(*read_));
    std::ranges::copy(read_->weights(), rows);
    return std::ranges::all_of(read_->clocks(), [&](int64_t clock) { return clock == clock_; });
  }

 private:
  ps::Client& client_;
  const std::shared_ptr<ps::RowRead> read_;
  const int64_t clock_;
};

Result<std::unique_ptr<RowsRead>> ServedTables::begin_read(uint32_t table,
                                                           std::span<const uint64_t> keys,
                                                           int64_t clock) {
  MUSTER_TRY(auto read, client_->begin_read(table, keys, clock, /*exactly=*/true));
  return std::unique_ptr<RowsRead>(std::make_unique<Read>(*client_, std::move(read), clock));
}

}  // namespace muster::train
