#include "tools/muster/export_rows.h"

#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/ps/net/job_setup.h"

#include "tools/muster/find_run.h"

namespace muster::cli {
namespace {

constexpr uint32_t kRowTable = 0;  // ps::setup_of

Status check_since(const config::Job& job, int64_t since, const RowsOfCheckpoint& rows) {
  const int64_t known = rows.rows.evicted_after;
  if (ps::clock_after(job, since) >= known) return {};
  const int64_t of_a_step = ps::clock_after(job, 1);
  return Error(ErrorKind::kCheckpoint,
               "--since {}: the checkpoint of step {} does not know any more which rows were "
               "evicted before step {}; export all rows once, without --since, and then what "
               "changed more often",
               since, rows.step, (known + of_a_step - 1) / of_a_step);
}

}  // namespace

Result<std::optional<RowsOfCheckpoint>> rows_of(const track::RunDirectory& run,
                                                const ckpt::Snapshot& snapshot,
                                                std::optional<int64_t> since, FileSystem& files) {
  std::vector<std::string_view> shards;
  while (const auto* const shard = snapshot.state.find(ps::rows_name(shards.size()))) {
    shards.emplace_back(reinterpret_cast<const char*>(shard->data.data()), shard->data.size());
  }
  if (shards.empty()) return std::optional<RowsOfCheckpoint>();
  MUSTER_TRY(const auto job, load_run_job(run, {}, {}, "", files));
  if (job.tables.width == 0) return std::optional<RowsOfCheckpoint>();
  if (since && *since > snapshot.step) {
    return Error(ErrorKind::kUsage,
                 "--since {}: the checkpoint is of step {}; name a step up to that, or another "
                 "checkpoint",
                 *since, snapshot.step);
  }
  const auto setup = ps::setup_of(job);
  MUSTER_RETURN_IF_ERROR(ps::check_shards(setup, shards.size()));
  RowsOfCheckpoint result{
      .step = snapshot.step, .since = since, .width = job.tables.width, .rows = {}};
  MUSTER_TRY(result.rows, ps::export_rows(setup.tables, kRowTable, shards,
                                          ps::clock_after(job, since.value_or(0))));
  if (since) MUSTER_RETURN_IF_ERROR(check_since(job, *since, result));
  return std::optional(std::move(result));
}

std::string rows_file(const std::string& out) {
  constexpr std::string_view kEnd = ".safetensors";
  const std::string name = out.ends_with(kEnd) ? out.substr(0, out.size() - kEnd.size()) : out;
  return name + ".rows" + std::string(kEnd);
}

Status write_rows(FileSystem& files, const RowsOfCheckpoint& rows, const std::string& path) {
  const auto count = static_cast<int64_t>(rows.rows.keys.size());
  std::vector<ckpt::TensorView> tensors = {
      {"keys", ckpt::DType::U64, {count}, std::as_bytes(std::span(rows.rows.keys))},
      {"rows", ckpt::DType::F32, {count, rows.width}, std::as_bytes(std::span(rows.rows.weights))}};
  std::map<std::string, std::string> metadata = {{"step", std::to_string(rows.step)}};
  if (rows.since) {
    const auto& evicted = rows.rows.evicted;
    tensors.push_back({"evicted",
                       ckpt::DType::U64,
                       {static_cast<int64_t>(evicted.size())},
                       std::as_bytes(std::span(evicted))});
    metadata["since"] = std::to_string(*rows.since);
  }
  return replace_file(files, path, [&](const std::string& aside) -> Status {
    MUSTER_TRY(const auto written, ckpt::write_safetensors(files, aside, tensors, metadata));
    (void)written;
    return {};
  });
}

}  // namespace muster::cli
