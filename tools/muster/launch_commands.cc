// train and resume: make or choose the run directory, then stand at the door while the worker
// works.
#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "muster/config/load.h"
#include "muster/config/source.h"
#include "muster/config/table.h"
#include "muster/sync/recipe.h"
#include "muster/track/run_events.h"
#include "muster/track/start_script.h"

#include "tools/muster/attempt_events.h"
#include "tools/muster/commands.h"
#include "tools/muster/find_run.h"
#include "tools/muster/hand_over.h"
#include "tools/muster/job_sources.h"
#include "tools/muster/machines.h"
#include "tools/muster/own_program.h"
#include "tools/muster/ready_run.h"
#include "tools/muster/run_facts.h"
#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

// `command`: train or resume.
Outcome launch(std::string_view command, const ReadyRun& ready, bool json, Context& context) {
  const auto& run = ready.run;
  MUSTER_RETURN_IF_ERROR(context.console.flush());
  const auto events = open_events(run, context);
  events->write(start_event(command, 1));
  const auto ended = run_worker(ready.worker, ready.words);
  if (!ended.ok()) {
    events->write(end_event(false, 0, ended.error().message()));
    return ended.error();
  }
  const launch::Ending& end = *ended;
  const int stopped_by = end.signal != 0 ? end.signal : std::max(0, end.exit_code - 128);
  const auto status = run.read_status();
  const bool failed = status.state == track::RunState::kFailed;
  events->write(
      end_event(end.signal == 0 && end.exit_code == 0, stopped_by, failed ? status.reason : ""));
  const auto death = exit_message(
      end, "the worker",
      fmt::format("the log is {}; go on with `{}`", run.log_file(), resume_command(run)));
  if (!death) {
    if (end.exit_code == 0) hint_next(ready, context.console);
    return end.exit_code;
  }
  // One that was killed in the middle of its progress line left the cursor behind it.
  if (end.signal != 0 && isatty(STDERR_FILENO) == 1) context.console.aside("");
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

void tell_finished(const track::RunDirectory& run, bool json, Context& context) {
  const auto result = run.read_result();
  if (json) {
    context.console.line(result ? result->dump() : nlohmann::json::object().dump());
    return;
  }
  const RunFacts facts = gather_facts(run, context.files);
  context.console.line(
      fmt::format("{} is finished: {} steps{}{}", run_name(run), facts.steps,
                  facts.metrics.empty() ? "" : ", " + metrics_text(facts.metrics),
                  facts.weights_hash.empty() ? "" : ", weights " + facts.weights_hash));
  context.console.note(fmt::format("to train longer: {} -s passes=...", resume_command(run)));
}

bool changes_length(const std::vector<std::string>& sets) {
  return std::ranges::any_of(sets, [](const std::string& set) {
    return set.starts_with("passes=") || set.starts_with("steps=") || set.starts_with("time=");
  });
}

// Those that the job names, for the formats that come with Muster. Told now, nothing has
// been made on the disk yet; the worker that opens them says what is wrong inside.
Status check_files(const config::LoadedJob& loaded) {
  const auto check = [&](const std::string& key, const std::string& path) -> Status {
    if (path.empty() || config::is_url(path) || config::has_wildcard(path)) return {};
    if (access(path.c_str(), F_OK) == 0 || errno != ENOENT) return {};
    const auto mark = loaded.places.find(key);
    return Error(ErrorKind::kIo,
                 "{}{}: there is no file '{}'; paths are relative to the job file. The examples' "
                 "data is fetched by scripts/fetch_data.sh",
                 mark == loaded.places.end() ? "" : mark->second.text() + ": ", key, path);
  };
  for (const auto& [key, source] : {std::pair("data.train", &loaded.job.data.train),
                                    std::pair("data.test", &loaded.job.data.test)}) {
    MUSTER_RETURN_IF_ERROR(check(fmt::format("{}.images", key), source->images));
    MUSTER_RETURN_IF_ERROR(check(fmt::format("{}.labels", key), source->labels));
    MUSTER_RETURN_IF_ERROR(check(fmt::format("{}.path", key), source->path));
  }
  return {};
}

void note_spares(const config::Job& job, const SeveralArguments& several, Console& console) {
  const int64_t units = sync::units_of(job);
  int64_t most = units;
  if (several.sites > 0 && sync::is_periodic(job.sync.strategy)) {
    most = std::min(several.sites, units) * sync::lanes_per_unit(job);
  } else if (several.sites > 0) {
    console.note(fmt::format("--sites has no effect with sync.strategy {}", job.sync.strategy));
  }
  if (several.workers <= most) return;
  console.note(fmt::format("{} workers for {} {}: {} will stand by, to take over if one is lost",
                           several.workers, units, sync::unit_name(job), several.workers - most));
}

Status check_count(const config::Job& job, const SeveralArguments& several) {
  const bool alone = several.listen.empty();
  if (!several.any() || several.workers >= job.workers.min || !alone) return {};
  return Error(ErrorKind::kUsage,
               "{} workers are fewer than the job's workers.min {}: nobody would train; start "
               "more, or let others join with --listen",
               several.workers, job.workers.min);
}

// muster-worker cannot run the loop of another program.
Status check_own_loop(const track::RunDirectory& run, const config::Job& job,
                      const std::string& worker) {
  const bool named = !WorkerPlaces::of_process(worker).environment.empty() || !worker.empty();
  if (named || job.model.use != "own-loop" || !track::find_start_script(run.path()).empty()) {
    return {};
  }
  return Error(ErrorKind::kUsage,
               "{} cannot be resumed: its training loop is in a program that is not kept with the "
               "run, such as a notebook; if it is a C++ program, name it with --worker",
               run_name(run));
}

std::string name_on_command_line(const track::RunDirectory& run) {
  const bool in_default_place = std::filesystem::path(run.path()).parent_path() == "runs";
  return in_default_place ? run_name(run) : run.path();
}

std::vector<std::string> train_words(const track::RunDirectory& run, bool quiet, bool json) {
  return {"train", "--run", run.path(), "--display", json ? "json" : quiet ? "quiet" : "normal"};
}

}  // namespace

std::string resume_command(const track::RunDirectory& run) {
  return "muster resume " + name_on_command_line(run);
}

void hint_next(const ReadyRun& ready, Console& console) {
  if (!ready.hints || console.width() == 0) return;
  if (ready.run.read_status().state != track::RunState::kFinished) return;
  const std::string name = name_on_command_line(ready.run);
  std::vector<std::pair<std::string, std::string_view>> next = {
      {fmt::format("muster report {}", name), "curves, faults and times, as one HTML file"},
      {fmt::format("muster export {} --out FILE.safetensors", name), "its weights, for elsewhere"},
      {fmt::format("{} -s passes=N", resume_command(ready.run)), "train longer"}};
  // Only the program of an own loop has its model and its data.
  if (ready.job.model.use != "own-loop") {
    const std::string_view data = ready.job.data.test.format.empty() ? " --data FILE" : "";
    next.insert(
        next.begin(),
        {{fmt::format("muster eval {}{}", name, data), "measure it, also on other data (--data)"},
         {fmt::format("muster predict {}{}", name, data), "see what it says about samples"}});
  }
  size_t width = 0;
  for (const auto& [command, meaning] : next) width = std::max(width, command.size());
  console.aside("next:");
  for (const auto& [command, meaning] : next) {
    console.aside(fmt::format("  {:<{}}  {}", command, width, meaning));
  }
}

Result<track::RunDirectory> make_directory(const config::Job& job, const std::string& run_directory,
                                           Context& context) {
  if (job.sync.strategy == "auto") {
    return Error(ErrorKind::kUsage,
                 "sync.strategy auto is for `muster train`; name another one, which `muster plan` "
                 "helps to choose");
  }
  const std::string yaml = config::resolved_yaml(job);
  if (!run_directory.empty()) return create_at(run_directory, yaml, context.files);
  MUSTER_TRY(auto run,
             track::RunDirectory::create(context.files, job.runs, job.name, context.clock));
  MUSTER_RETURN_IF_ERROR(run.write_job(yaml));
  return run;
}

Result<std::string> worker_of_run(const track::RunDirectory& run, const std::string& given) {
  const std::string script = track::find_start_script(run.path());
  if (given.empty() && !script.empty()) return script;
  return find_worker(WorkerPlaces::of_process(given));
}

Result<OwnProgram> asked_program(const std::string& path, Context& context) {
  std::string errors;
  auto program = ask_program(path, context.files, errors);
  if (!program.ok() && !errors.empty()) context.console.aside(errors);
  return program;
}

Result<ReadyRun> make_run(const TrainArguments& arguments, Context& context) {
  std::optional<OwnProgram> program;
  if (!arguments.program.empty()) {
    MUSTER_TRY(program, asked_program(arguments.program, context));
  }
  MUSTER_TRY(const auto sources, program
                                     ? job_sources(*program, arguments.set, context.files)
                                     : job_sources(arguments.job, arguments.set, context.files));
  MUSTER_TRY(auto loaded, config::load_job(sources));
  for (const auto& warning : loaded.warnings) context.console.warning(warning);
  // Before anything is made on the disk.
  std::string worker;
  if (!program) {
    MUSTER_TRY(worker, find_worker(WorkerPlaces::of_process(arguments.worker)));
  }
  MUSTER_RETURN_IF_ERROR(check_count(loaded.job, arguments.several));
  if (loaded.job.sync.strategy == "auto" && !program) {
    // Beside the run, where the hosts find it too.
    const auto beside = std::filesystem::path(arguments.run_directory).parent_path().string();
    const bool named = !arguments.run_directory.empty();
    const Trial trial = {.hosts = arguments.several.hosts,
                         .worker = arguments.worker,
                         .listen = arguments.several.listen,
                         .place = !named           ? loaded.job.runs
                                  : beside.empty() ? "."
                                                   : beside};
    MUSTER_RETURN_IF_ERROR(choose_strategy(loaded.job, arguments.job, trial, context));
  }
  // Hosts may have files that this machine has not.
  if (arguments.several.hosts.empty()) MUSTER_RETURN_IF_ERROR(check_files(loaded));
  note_spares(loaded.job, arguments.several, context.console);

  MUSTER_TRY(auto run, make_directory(loaded.job, arguments.run_directory, context));
  auto words = train_words(run, arguments.quiet, arguments.json);
  if (program) {
    MUSTER_TRY(worker, track::write_start_script(context.files, run.path(), program->start));
  } else {
    words.insert(words.end(), {"--written", arguments.job});
  }
  return ReadyRun{std::move(run), std::move(loaded.job), std::move(worker), std::move(words),
                  !arguments.quiet && !arguments.json};
}

Result<std::optional<ReadyRun>> choose_run(const ResumeArguments& arguments, Context& context) {
  MUSTER_TRY(auto run, find_run(arguments.run, context.files));
  MUSTER_TRY(auto job,
             load_run_job(
                 run, arguments.set,
                 {"threads", "workers", "audit", "passes", "steps", "time", "numerics",
                  "checkpoint.to", "data.memory", "data.requests", "data.cache", "data.cache_size",
                  // Where the data is; whether it is the same, the fingerprint tells.
                  "data.train.path", "data.test.path", "data.index",
                  // For a run that damage has stopped.
                  "data.on_damage"},
                 "other options would change the bits of what is trained already", context.files));
  const auto state = run.read_status().state;
  if (state == track::RunState::kFinished && arguments.set.empty()) {
    tell_finished(run, arguments.json, context);
    return std::optional<ReadyRun>();
  }
  MUSTER_RETURN_IF_ERROR(check_own_loop(run, job, arguments.worker));
  MUSTER_TRY(auto worker, worker_of_run(run, arguments.worker));
  MUSTER_RETURN_IF_ERROR(check_count(job, arguments.several));
  if (!arguments.set.empty()) {
    // The lock keeps a running worker's job from changing under it.
    MUSTER_TRY(const auto lock, run.lock());
    MUSTER_RETURN_IF_ERROR(run.write_job(config::resolved_yaml(job)));
    const auto& schedule = job.optimizer.schedule;
    if ((schedule.kind == "cosine" || schedule.kind == "linear") && schedule.steps == 0 &&
        changes_length(arguments.set)) {
      context.console.note(fmt::format(
          "the {} schedule follows the job's length: the learning rate goes on as if the new "
          "length had been there from the start",
          schedule.kind));
    }
  } else if (track::RunLock::is_held(run.lock_file())) {
    return Error(ErrorKind::kUsage, "'{}' is being trained right now by another process",
                 run.path());
  }
  if (arguments.accept_other_data) {
    // Once, before there are workers: those that start later take the index that the first makes.
    MUSTER_TRY(const auto lock, run.lock());
    MUSTER_RETURN_IF_ERROR(context.files.remove_all(run.indexes()));
  }
  // With a copy, other hosts may have checkpoints.
  if (!has_checkpoint(run, context.files) && job.checkpoint.to.empty()) {
    context.console.note(fmt::format("{} has no checkpoint yet: it begins anew", run_name(run)));
  }
  auto words = train_words(run, arguments.quiet, arguments.json);
  if (arguments.accept_other_data) words.emplace_back("--accept-other-data");
  return std::optional(ReadyRun{std::move(run), std::move(job), std::move(worker), std::move(words),
                                !arguments.quiet && !arguments.json});
}

Outcome run(const TrainArguments& arguments, Context& context) {
  if (arguments.several.any()) return hand_over(context);
  MUSTER_TRY(const auto ready, make_run(arguments, context));
  return launch("train", ready, arguments.json, context);
}

Outcome run(const ResumeArguments& arguments, Context& context) {
  // It fetches the run, and becomes `muster resume` of that.
  if (is_copy(arguments.run.name, context.files)) return hand_over(context, "muster-data");
  if (arguments.several.any()) return hand_over(context);
  MUSTER_TRY(auto ready, choose_run(arguments, context));
  if (!ready) return 0;
  ready->words.emplace_back("--resume");
  return launch("resume", *ready, arguments.json, context);
}

Outcome run(const VerifyArguments&, Context& context) { return hand_over(context); }

}  // namespace muster::cli
