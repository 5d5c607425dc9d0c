#include "tools/muster-launch/verify/compare.h"

#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>

#include "muster/track/metrics.h"
#include "muster/track/run_directory.h"

namespace muster::cli {

Result<RunOutcome> read_outcome(const std::string& path, FileSystem& files) {
  RunOutcome outcome;
  MUSTER_TRY(const auto run, track::RunDirectory::open(files, path));
  const auto result = run.read_result();
  if (!result || !result->contains("weights_hash")) {
    return Error(ErrorKind::kInternal, "'{}' has no result: its log says why", path);
  }
  outcome.result = *result;
  MUSTER_TRY(auto metrics, track::read_metrics(files, run.metrics_file()));
  for (auto& record : metrics.records) {
    if (record.contains("links")) continue;
    track::erase_times(record);
    track::set_rollback(record, 0);
    outcome.records.push_back(std::move(record));
  }
  return outcome;
}

namespace {

std::vector<std::string> differ_in(std::initializer_list<const char*> keys,
                                   const RunOutcome& undisturbed, const RunOutcome& disturbed) {
  std::vector<std::string> found;
  for (const char* const key : keys) {
    const auto a = undisturbed.result.value(key, nlohmann::ordered_json());
    const auto b = disturbed.result.value(key, nlohmann::ordered_json());
    if (a == b) continue;
    found.push_back(fmt::format("{}: {} undisturbed, {} disturbed", key, a.dump(), b.dump()));
  }
  return found;
}

}  // namespace

std::vector<std::string> differences_of_work(const RunOutcome& undisturbed,
                                             const RunOutcome& disturbed) {
  // When that is depends on the weights.
  const auto stopped = [](const RunOutcome& run) {
    return run.result.value("ended", "") == "early_stop";
  };
  if (stopped(undisturbed) || stopped(disturbed)) return {};
  return differ_in({"steps", "samples", "ledger", "ended"}, undisturbed, disturbed);
}

std::vector<std::string> differences(const RunOutcome& undisturbed, const RunOutcome& disturbed) {
  auto found =
      differ_in({"weights_hash", "steps", "samples", "ledger", "test", "redone_steps",
                 "skipped_steps", "damaged_blocks", "replaced_samples", "best_step", "ended"},
                undisturbed, disturbed);
  const auto& a = undisturbed.records;
  const auto& b = disturbed.records;
  const size_t lines = std::min(a.size(), b.size());
  for (size_t i = 0; i < lines; ++i) {
    if (a[i] == b[i]) continue;
    found.push_back(fmt::format("metrics, line {}: {} undisturbed, {} disturbed", i + 1,
                                a[i].dump(), b[i].dump()));
    break;
  }
  if (a.size() != b.size()) {
    found.push_back(fmt::format("metrics: {} lines undisturbed, {} disturbed", a.size(), b.size()));
  }
  return found;
}

}  // namespace muster::cli
