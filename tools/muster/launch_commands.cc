// train and resume: make or choose the run directory, then stand at the door while the worker
// works.
#include <filesystem>

#include <nlohmann/json.hpp>

#include "muster/config/load.h"
#include "muster/config/table.h"
#include "muster/track/run_directory.h"

#include "tools/muster/commands.h"
#include "tools/muster/find_run.h"
#include "tools/muster/job_sources.h"
#include "tools/muster/run_facts.h"
#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

std::string display(bool quiet, bool json) { return json ? "json" : quiet ? "quiet" : "normal"; }

// How to name the run on the next command line, from here.
std::string resume_command(const track::RunDirectory& run) {
  const auto path = std::filesystem::path(run.path());
  const bool in_default_place = path.parent_path() == "runs";
  return "muster resume " + (in_default_place ? run_name(run) : run.path());
}

// `how`: what the worker is told besides.
Outcome launch(const std::string& worker, const track::RunDirectory& run, bool quiet, bool json,
               const std::vector<std::string>& how, Context& context) {
  std::vector<std::string> arguments = {"train", "--run", run.path(), "--display",
                                        display(quiet, json)};
  arguments.insert(arguments.end(), how.begin(), how.end());
  MUSTER_RETURN_IF_ERROR(context.console.flush());
  MUSTER_TRY(const auto end, run_worker(worker, arguments));
  const auto death =
      obituary(end, "the worker",
               fmt::format("the log is {}; go on with `{}`", run.log_file(), resume_command(run)));
  if (!death) return end.exit_code;
  context.console.error(death->kind, death->sentence, json);
  return death->exit_code;
}

// A new directory at exactly this place. One that is there but empty will do: mktemp made it.
Result<track::RunDirectory> create_at(const std::string& path, const std::string& yaml,
                                      FileSystem& files) {
  MUSTER_TRY(const auto inside, files.list(path));
  const auto taken = [&] {
    return Error(ErrorKind::kUsage,
                 "--run-dir: there is something in '{}' already; name a new directory, or go on "
                 "with it: muster resume {}",
                 path, path);
  };
  std::error_code failed;
  const bool is_directory = std::filesystem::is_directory(path, failed);
  if (!inside.empty() || (files.exists(path) && !is_directory)) return taken();
  MUSTER_RETURN_IF_ERROR(files.create_directories(path));
  MUSTER_RETURN_IF_ERROR(write_file_atomically(files, path + "/job.yaml", yaml));
  return track::RunDirectory::open(files, path);
}

Outcome tell_finished(const track::RunDirectory& run, bool json, Context& context) {
  const auto result = run.read_result();
  if (json) {
    context.console.line(result ? result->dump() : nlohmann::json::object().dump());
    return 0;
  }
  const RunFacts facts = gather_facts(run, context.files);
  context.console.line(
      fmt::format("{} is finished: {} steps{}{}", run_name(run), facts.steps,
                  facts.metrics.empty() ? "" : ", " + metrics_text(facts.metrics),
                  facts.weights_hash.empty() ? "" : ", weights " + facts.weights_hash));
  context.console.note(fmt::format("to train longer: {} -s passes=...", resume_command(run)));
  return 0;
}

}  // namespace

Outcome run(const TrainArguments& arguments, Context& context) {
  MUSTER_TRY(const auto sources, job_sources(arguments.job, arguments.set, context.files));
  MUSTER_TRY(const auto loaded, config::load_job(sources));
  for (const auto& warning : loaded.warnings) context.console.warning(warning);
  // Before anything is made on the disk.
  MUSTER_TRY(const auto worker, find_worker(WorkerPlaces::of_process(arguments.worker)));

  const std::string yaml = config::resolved_yaml(loaded.job);
  const std::vector<std::string> how = {"--written", arguments.job};
  if (!arguments.run_directory.empty()) {
    MUSTER_TRY(const auto run, create_at(arguments.run_directory, yaml, context.files));
    return launch(worker, run, arguments.quiet, arguments.json, how, context);
  }
  MUSTER_TRY(const auto run, track::RunDirectory::create(context.files, loaded.job.runs,
                                                         loaded.job.name, context.clock));
  MUSTER_RETURN_IF_ERROR(run.write_job(yaml));
  return launch(worker, run, arguments.quiet, arguments.json, how, context);
}

Outcome run(const ResumeArguments& arguments, Context& context) {
  MUSTER_TRY(const auto run, find_run(arguments.run, context.files));
  MUSTER_TRY(const auto job,
             load_run_job(run, arguments.set, {"threads", "passes", "steps", "time"},
                          "other options would change the bits of what is trained already",
                          context.files));
  const auto state = run.read_status().state;
  if (state == track::RunState::kFinished && arguments.set.empty()) {
    return tell_finished(run, arguments.json, context);
  }
  MUSTER_TRY(const auto worker, find_worker(WorkerPlaces::of_process(arguments.worker)));
  if (!arguments.set.empty()) {
    // The lock keeps a running worker's job from changing under it.
    MUSTER_TRY(const auto lock, run.lock());
    MUSTER_RETURN_IF_ERROR(run.write_job(config::resolved_yaml(job)));
    const auto& schedule = job.optimizer.schedule;
    if ((schedule.kind == "cosine" || schedule.kind == "linear") && schedule.steps == 0) {
      context.console.note(fmt::format(
          "the {} schedule follows the job's length: the learning rate goes on as if the new "
          "length had been there from the start",
          schedule.kind));
    }
  } else if (track::RunLock::is_held(run.lock_file())) {
    return Error(ErrorKind::kUsage, "'{}' is being trained right now by another process",
                 run.path());
  }
  return launch(worker, run, arguments.quiet, arguments.json, {"--resume"}, context);
}

}  // namespace muster::cli
