#include "tools/muster/machines.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

#include <nlohmann/json.hpp>

#include "muster/base/text.h"
#include "muster/config/table.h"
#include "muster/launch/hosts.h"
#include "muster/optim/optimizer.h"

#include "tools/muster/job_facts.h"
#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

constexpr int64_t kSteps = 20;     // of the trial, at most,
constexpr double kSeconds = 20;    // and so long
constexpr size_t kWarmUp = 2;      // steps that do not count
constexpr size_t kLeastSteps = 2;  // that do

// Few bits, so that it does not take long on slow links either.
config::Job trial_of(config::Job job, int workers) {
  job.sync = {};
  job.sync.bits = 2;
  job.sync.rotation = "hadamard";
  job.steps = kSteps;
  job.passes = 0;
  job.time = kSeconds;
  job.checkpoint.every = {};
  job.eval.every = {};
  job.early_stop = {};
  job.workers.min = workers;
  job.workers.max = 0;
  job.track.tensorboard = false;
  job.track.links = true;
  job.track.every = {.value = 1, .unit = config::Every::Unit::kSteps};
  return job;
}

// Removes a folder when it is no longer needed.
class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

std::string last_line(const std::string& text) {
  const auto lines = split(std::string(trim(text)), '\n');
  return lines.empty() ? "" : lines.back();
}

}  // namespace

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
      machines.network = sync::network_of(links.value("rate", 0.0), links.value("delay", 0.0));
      measured = machines.network.rate > 0;
    } else if (record.contains("waited")) {
      steps.push_back(record.value("seconds", 0.0) - record.value("waited", 0.0));
    }
  }
  if (!measured) {
    return Error(ErrorKind::kJob, "the links were not measured: the trial had only one worker");
  }
  if (steps.size() < kWarmUp + kLeastSteps) {
    return Error(ErrorKind::kJob,
                 "{} s were not enough for {} steps of this job on these hosts; give `muster plan` "
                 "--workers, --rate and --step-time instead of --hosts",
                 kSeconds, kWarmUp + kLeastSteps);
  }
  steps.erase(steps.begin(), steps.begin() + kWarmUp);
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::ranges::nth_element(steps, middle);
  machines.compute = *middle;
  return machines;
}

Result<Machines> measure_hosts(const config::Job& job, const std::string& hosts_file,
                               const std::string& worker, Context& context) {
  MUSTER_TRY(const auto hosts, launch::read_hosts(context.files, hosts_file));
  const auto workers = static_cast<int>(
      std::accumulate(hosts.begin(), hosts.end(), int64_t{0},
                      [](int64_t sum, const launch::Host& host) { return sum + host.workers; }));
  if (workers < 2) {
    return Error(ErrorKind::kUsage, "{}: a single worker has no links to measure", hosts_file);
  }
  if (workers > job.lanes) {
    return Error(ErrorKind::kUsage, "{} workers share {} lanes; raise lanes (-s lanes={})", workers,
                 job.lanes, workers);
  }
  MUSTER_TRY(const auto program, find_program("muster-launch"));
  // Where the hosts find it, as they will find the run itself.
  const Folder folder(fmt::format("{}/.plan-{}", job.runs, getpid()));
  MUSTER_RETURN_IF_ERROR(context.files.create_directories(folder.path()));
  const std::string file = folder.path() + "/job.yaml";
  MUSTER_RETURN_IF_ERROR(
      write_file_atomically(context.files, file, config::resolved_yaml(trial_of(job, workers))));
  context.console.aside(
      fmt::format("measuring the links and steps of {} workers for some seconds "
                  "...",
                  workers));
  std::vector<std::string> words = {
      "train", file, "--hosts", hosts_file, "--run-dir", folder.path() + "/run", "--quiet"};
  if (!worker.empty()) words.insert(words.end(), {"--worker", worker});
  MUSTER_TRY(const auto end, capture_worker(program, words));
  if (end.signal != 0 || end.exit_code != 0) {
    return Error(ErrorKind::kJob, "a trial on these hosts failed: {}", last_line(end.errors));
  }
  std::ifstream metrics(folder.path() + "/run/metrics.jsonl");
  return read_measurement({std::istreambuf_iterator<char>(metrics), {}}, workers);
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

Status choose_strategy(config::Job& job, const std::string& job_file,
                       const SeveralArguments& several, const std::string& worker,
                       Context& context) {
  job.sync.strategy = "lockstep";
  if (several.hosts.empty() && !several.listen.empty()) {
    return Error(ErrorKind::kUsage,
                 "sync.strategy auto needs to know the machines, and others may join with "
                 "--listen; name them with --hosts, or ask `muster plan` and name a strategy");
  }
  if (several.hosts.empty()) {
    context.console.note("sync.strategy auto: lockstep, as all workers are on this machine");
    return {};
  }
  MUSTER_TRY(const auto program, find_worker(WorkerPlaces::of_process(worker)));
  MUSTER_TRY(const auto machines, measure_hosts(job, several.hosts, worker, context));
  MUSTER_TRY(const auto model, size_of_model(job, job_file, program, context));
  const auto predictions = predict(job, model, machines);
  const size_t choice = recommended(predictions);
  job = predictions[choice].setting.job;
  context.console.note(fmt::format("sync.strategy auto, with {:.3g} Mbit/s between workers: {}. {}",
                                   8e-6 * machines.network.rate,
                                   choice == 0 ? "lockstep" : predictions[choice].setting.sync,
                                   reason_for(predictions, choice, machines.compute)));
  return {};
}

}  // namespace muster::cli
