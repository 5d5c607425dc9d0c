#include "tools/muster/machines.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include <nlohmann/json.hpp>

#include "muster/base/scratch_directory.h"
#include "muster/base/text.h"
#include "muster/config/table.h"
#include "muster/launch/hosts.h"
#include "muster/optim/optimizer.h"
#include "muster/sync/recipe.h"

#include "tools/muster/job_facts.h"
#include "tools/muster/job_timing.h"
#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

constexpr int64_t kSteps = 12;  // of the trial, at most,
// and so long, from the start of its processes on: only a limit for very slow links.
constexpr double kSeconds = 120;
constexpr size_t kWarmUp = 2;      // steps that do not count
constexpr size_t kLeastSteps = 2;  // that do

// Few bits, so that it does not take long on slow links either.
config::Job trial_of(config::Job job, int workers) {
  job = short_run(std::move(job), kSteps, kSeconds);
  job.sync = {};
  job.sync.bits = 2;
  job.sync.rotation = "hadamard";
  job.not_finite = "skip";
  job.workers.min = workers;
  job.workers.max = workers;
  job.track.links = true;
  return job;
}

int64_t workers_of(const std::vector<launch::Host>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), int64_t{0},
                         [](int64_t sum, const launch::Host& host) { return sum + host.workers; });
}

// Those that would train, of the ones that are started.
int training(const config::Job& job, int64_t workers) {
  const int64_t most = job.workers.max > 0 ? std::min(job.workers.max, job.lanes) : job.lanes;
  return static_cast<int>(std::min(workers, most));
}

}  // namespace

std::string rate_text(double bits) {
  if (bits >= 1e9) return fmt::format("{:.3g} Gbit/s", 1e-9 * bits);
  if (bits >= 1e6) return fmt::format("{:.3g} Mbit/s", 1e-6 * bits);
  return fmt::format("{:.3g} kbit/s", 1e-3 * bits);
}

Result<Machines> read_measurement(const std::string& metrics, int workers) {
  Machines machines;
  machines.hosts = workers;
  bool measured = false;
  std::vector<double> steps;
  for (const auto& line : split(metrics, '\n')) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    if (!record.is_object()) continue;
    if (record.contains("links")) {
      const auto& links = record["links"];
      machines.rate = 8 * links.value("rate", 0.0);
      machines.network =
          sync::network_of(links.value("rate", 0.0), links.value("delay", 0.0), workers);
      measured = machines.network.rate > 0;
    } else if (record.contains("waited")) {
      steps.push_back(record.value("seconds", 0.0) - record.value("waited", 0.0));
    }
  }
  if (!measured) {
    return Error(ErrorKind::kJob, "the metrics of the trial tell nothing of links");
  }
  if (steps.size() < kWarmUp + kLeastSteps) {
    return Error(ErrorKind::kJob,
                 "{} s were not enough for {} steps of this job on these hosts; give `muster plan` "
                 "--workers, --rate and --step-time instead of --hosts",
                 kSeconds, kWarmUp + kLeastSteps);
  }
  steps.erase(steps.begin(), steps.begin() + kWarmUp);
  machines.compute = median(std::move(steps));
  return machines;
}

Result<Machines> measure_hosts(const config::Job& job, const Trial& trial, Context& context) {
  MUSTER_TRY(const auto hosts, launch::read_hosts(context.files, trial.hosts));
  const int workers = training(job, workers_of(hosts));
  if (workers < 2) {
    return Error(ErrorKind::kUsage, "{}: a single worker has no links to measure", trial.hosts);
  }
  MUSTER_TRY(const auto program, find_program("muster-launch"));
  MUSTER_RETURN_IF_ERROR(context.files.create_directories(trial.place));
  MUSTER_TRY(const auto folder, ScratchDirectory::make_in(trial.place, ".plan"));
  MUSTER_RETURN_IF_ERROR(write_file_atomically(context.files, folder.path() + "/job.yaml",
                                               config::resolved_yaml(trial_of(job, workers))));
  context.console.aside(
      fmt::format("measuring the links and steps of {} workers; this takes a moment ...", workers));
  // Not `train`, which would look at the environment again.
  std::vector<std::string> words = {"resume", folder.path(), "--hosts", trial.hosts, "--quiet"};
  if (!trial.worker.empty()) words.insert(words.end(), {"--worker", trial.worker});
  if (!trial.listen.empty()) words.insert(words.end(), {"--listen", trial.listen});
  MUSTER_TRY(const auto end, capture_worker(program, words));
  if (end.signal != 0 || end.exit_code != 0) {
    auto why = end.last_message();
    why = why.substr(0, why.find("; the log"));  // it is gone with the folder
    return Error(ErrorKind::kJob,
                 "a trial of the job on the machines of {} failed: {}. Its folder was in {}, which "
                 "all of them must share",
                 trial.hosts, why, trial.place);
  }
  MUSTER_TRY(const auto metrics, context.files.read(folder.path() + "/metrics.jsonl"));
  return read_measurement(metrics, workers);
}

Result<sync::ModelSize> size_of_model(const config::Job& job, const std::string& path,
                                      const std::string& worker, Context& context) {
  MUSTER_TRY(const auto facts, check_with_worker(worker, job, path, context.files));
  MUSTER_TRY(const auto optimizer, optim::make_optimizer(job.optimizer));
  const auto states = optimizer->state_names();
  const auto squares = std::ranges::count_if(states, optim::is_square);
  return sync::ModelSize{.parameters = facts.value("parameters", 0.0),
                         .states = static_cast<int>(states.size()),
                         .first_moments = static_cast<int>(std::ssize(states) - squares),
                         .sides = facts.value("matrix_sides", 0.0),
                         .vectors = facts.value("vector_parameters", 0.0)};
}

std::vector<Prediction> predict(const config::Job& job, const sync::ModelSize& model,
                                const Machines& machines) {
  std::vector<Prediction> predictions;
  for (auto& setting : settings_for(job, machines.hosts)) {
    const auto cost =
        sync::cost_of(setting.job, model, machines.hosts, machines.network, machines.compute);
    predictions.push_back({std::move(setting), cost});
  }
  return predictions;
}

Status choose_strategy(config::Job& job, const std::string& job_file, const Trial& trial,
                       Context& context) {
  job.sync = sync::lockstep_of(job.sync);
  const auto take_lockstep = [&](const char* why) -> Status {
    context.console.note(fmt::format("sync.strategy auto: lockstep, as {}", why));
    return {};
  };
  if (trial.hosts.empty() && !trial.listen.empty()) {
    return Error(ErrorKind::kUsage,
                 "sync.strategy auto has to know the machines, and others may join with --listen; "
                 "name them with --hosts, or ask `muster plan` and name a strategy");
  }
  if (trial.hosts.empty()) return take_lockstep("all workers are on this machine");
  MUSTER_TRY(const auto hosts, launch::read_hosts(context.files, trial.hosts));
  if (training(job, workers_of(hosts)) < 2) return take_lockstep("there is one worker");
  MUSTER_TRY(const auto program, find_worker(WorkerPlaces::of_process(trial.worker)));
  auto model = size_of_model(job, job_file, program, context);
  if (!model.ok()) {
    return std::move(model).error().context(
        "sync.strategy auto needs the model and the data on this machine too");
  }
  MUSTER_TRY(const auto machines, measure_hosts(job, trial, context));
  const auto predictions = predict(job, *model, machines);
  const size_t choice = recommended(predictions);
  job = predictions[choice].setting.job;
  context.console.note(fmt::format("sync.strategy auto, with {} between workers: {}. {}",
                                   rate_text(machines.rate),
                                   choice == 0 ? "lockstep" : predictions[choice].setting.sync,
                                   reason_for(predictions, choice, machines.compute)));
  return {};
}

}  // namespace muster::cli
