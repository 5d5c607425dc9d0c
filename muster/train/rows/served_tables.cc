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
                          float* rows, std::vector<int64_t>& clocks,
                          const std::function<Status()>& if_late) {
  MUSTER_TRY(const auto read, client_->begin_read(table, keys, clock));
  MUSTER_TRY(const bool there, client_->finish_within(*read, kUsual));
  if (!there && if_late) MUSTER_RETURN_IF_ERROR(if_late());
  MUSTER_RETURN_IF_ERROR(client_->finish(*read));
  std::ranges::copy(read->weights(), rows);
  clocks = read->clocks();
  return {};
}

}  // namespace muster::train
