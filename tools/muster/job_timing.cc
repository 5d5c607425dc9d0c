#include "tools/muster/job_timing.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "muster/base/scratch_directory.h"
#include "muster/base/text.h"
#include "muster/config/table.h"

#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

constexpr int64_t kSteps = 150;    // of a trial, at most,
constexpr double kSeconds = 3;     // and so long
constexpr size_t kWarmUp = 5;      // steps that do not count
constexpr size_t kLeastSteps = 5;  // that do
// Less than this is noise.
constexpr double kClearly = 1.05;

config::Job trial_of(config::Job job, const Arrangement& arrangement, int cores) {
  job.lanes = arrangement.lanes;
  job.threads_per_lane = arrangement.threads_per_lane;
  job.threads = std::max<int64_t>(cores, arrangement.threads_per_lane);
  return short_run(std::move(job), kSteps, kSeconds);
}

Result<double> time_one(const config::Job& job, const std::string& worker,
                        const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directory(folder, failed);
  std::ofstream(folder + "/job.yaml") << config::resolved_yaml(job);
  MUSTER_TRY(const auto end,
             capture_worker(worker, {"train", "--run", folder, "--display", "quiet"}));
  if (end.signal != 0 || end.exit_code != 0) {
    return Error(ErrorKind::kJob, "the job cannot be tried with lanes: {}: {}", job.lanes,
                 end.last_line());
  }
  std::ifstream file(folder + "/metrics.jsonl");
  const std::string metrics{std::istreambuf_iterator<char>(file), {}};
  const auto step = median_step(metrics);
  if (!step) {
    return Error(ErrorKind::kJob, "{} s are not enough for {} steps of this job", kSeconds,
                 kWarmUp + kLeastSteps);
  }
  return *step;
}

}  // namespace

config::Job short_run(config::Job job, int64_t steps, double seconds) {
  job.steps = steps;
  job.passes = 0;
  job.time = seconds;
  job.checkpoint.every = {};
  job.checkpoint.to.clear();
  job.track.tensorboard = false;
  job.track.every = {.value = 1, .unit = config::Every::Unit::kSteps};
  job.data.test = {};
  job.eval = {};
  job.early_stop = {};
  job.best_by.clear();
  if (job.sync.strategy == "auto") job.sync.strategy = "lockstep";
  return job;
}

std::vector<Arrangement> arrangements(const config::Job& job, int cores) {
  std::vector<Arrangement> all = {{job.lanes, job.threads_per_lane}};
  const auto add = [&](const Arrangement& other) {
    if (other.lanes > job.batch || std::ranges::find(all, other) != all.end()) return;
    all.push_back(other);
  };
  add({cores, 1});
  add({1, cores});
  return all;
}

std::optional<double> median_step(const std::string& metrics) {
  std::vector<double> times;
  for (const auto& line : split(metrics, '\n')) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    if (record.is_object() && record.contains("time") && record["time"].is_number() &&
        record.contains("step")) {
      times.push_back(record["time"].get<double>());
    }
  }
  if (times.size() < 1 + kWarmUp + kLeastSteps) return std::nullopt;
  std::vector<double> steps;
  for (size_t i = 1 + kWarmUp; i < times.size(); ++i) steps.push_back(times[i] - times[i - 1]);
  return median(std::move(steps));
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::optional<std::string> advise_lanes(const std::vector<Timing>& timings) {
  if (timings.empty()) return std::nullopt;
  const Timing& now = timings.front();
  const Timing& best = *std::ranges::min_element(timings, {}, &Timing::step_seconds);
  if (best.step_seconds * kClearly > now.step_seconds) return std::nullopt;
  return fmt::format(
      "with lanes: {} and threads_per_lane: {} a step of this job takes {:.1f} ms here instead of "
      "{:.1f} ms; both are part of the result, so choose before you train, and there can be no "
      "more workers than lanes",
      best.arrangement.lanes, best.arrangement.threads_per_lane, 1e3 * best.step_seconds,
      1e3 * now.step_seconds);
}

Result<std::vector<Timing>> time_steps(const config::Job& job, const std::string& worker, int cores,
                                       const std::function<void(const Arrangement&)>& begin) {
  MUSTER_TRY(const auto folder, ScratchDirectory::make("muster-doctor"));
  std::vector<Timing> timings;
  for (const auto& arrangement : arrangements(job, cores)) {
    begin(arrangement);
    const auto place = fmt::format("{}/{}", folder.path(), timings.size());
    MUSTER_TRY(const double seconds, time_one(trial_of(job, arrangement, cores), worker, place));
    timings.push_back({arrangement, seconds});
  }
  return timings;
}

Result<double> time_alone(const config::Job& job, const std::string& worker) {
  MUSTER_TRY(const auto folder, ScratchDirectory::make("muster-plan"));
  return time_one(short_run(job, kSteps, kSeconds), worker, folder.path() + "/run");
}

}  // namespace muster::cli
