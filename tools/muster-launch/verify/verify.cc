// verify: trains a job twice, undisturbed on one worker and with faults on several, and compares.
//
//   children   what is started, and ended with us
//   disturb    the disturbed training: when a fault falls, and its consequences
//   blow       whom a fault hits
//   awaited    who of them is not in again yet
//   commits    how far the job is
//   overhear   what the disturbed training says
//   compare    what the two runs came to, and in what they differ
//   timeline   what happened and how long it held the others up, in words
#include "tools/muster-launch/verify/verify.h"

#include <errno.h>
#include <stdlib.h>

#include <filesystem>
#include <optional>

#include "muster/config/load.h"

#include "tools/muster-launch/verify/children.h"
#include "tools/muster-launch/verify/compare.h"
#include "tools/muster-launch/verify/disturb.h"
#include "tools/muster/job_sources.h"
#include "tools/muster/ready_run.h"
#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDiffers = 9;  // docs/exit-codes.md

// Where both runs are written. One that we made ourselves is gone afterwards, unless there is
// something in it to be looked at.
class Folder {
 public:
  static Result<Folder> make(const std::string& wanted) {
    if (!wanted.empty()) {
      std::error_code failed;
      std::filesystem::create_directories(wanted, failed);
      if (failed) return io_error(failed.value(), fmt::format("cannot make '{}'", wanted));
      return Folder(wanted, false);
    }
    std::error_code failed;
    const auto place = std::filesystem::temp_directory_path(failed);
    if (failed) return io_error(failed.value(), "there is no folder for temporary files (TMPDIR)");
    std::string pattern = (place / "muster-verify-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) return io_error(errno, "cannot make a folder for runs");
    return Folder(pattern, true);
  }
  ~Folder() {
    std::error_code ignored;
    if (ours_) std::filesystem::remove_all(path_, ignored);
  }
  Folder(Folder&& other) noexcept
      : path_(std::move(other.path_)), ours_(std::exchange(other.ours_, false)) {}
  Folder& operator=(Folder&&) = delete;

  void keep() { ours_ = false; }
  std::string undisturbed() const { return path_ + "/undisturbed"; }
  std::string disturbed() const { return path_ + "/disturbed"; }
  const std::string& path() const { return path_; }

 private:
  Folder(std::string path, bool ours) : path_(std::move(path)), ours_(ours) {}
  std::string path_;
  bool ours_;
};

// Both runs get the same job; every step has its line, and no slot is ever given up.
std::vector<std::string> settings(const VerifyArguments& arguments) {
  auto set = arguments.set;
  set.insert(set.end(), {"track.every=1 steps", "workers.restarts=100000"});
  return set;
}

std::vector<std::string> job_words(const VerifyArguments& arguments) {
  std::vector<std::string> words = {arguments.job};
  for (const auto& set : settings(arguments)) words.insert(words.end(), {"-s", set});
  return words;
}

Result<DisturbPlan> make_plan(const VerifyArguments& arguments, Context& context) {
  MUSTER_TRY(const auto sources, job_sources(arguments.job, arguments.set, context.files));
  MUSTER_TRY(const auto loaded, config::load_job(sources));
  DisturbPlan plan;
  MUSTER_TRY(plan.faults, launch::parse_faults(arguments.faults));
  MUSTER_TRY(plan.worker, find_worker(WorkerPlaces::of_process(arguments.worker)));
  MUSTER_TRY(plan.muster, find_program("muster"));
  plan.job = job_words(arguments);
  plan.workers = static_cast<int>(arguments.workers);
  plan.lease = loaded.job.workers.lease;
  plan.lanes = static_cast<int>(loaded.job.lanes);
  plan.calm = arguments.calm;
  return plan;
}

// What `muster train` does with one worker, but for who keeps the door. Told to stop, the worker
// would save, and advise to go on with a run whose folder is gone a moment later. Nobody goes on
// with half a comparison, so it is killed: it has nothing to save, and says nothing.
Result<RunOutcome> train_undisturbed(const VerifyArguments& arguments, Folder& folder,
                                     Children& children, Context& context) {
  TrainArguments train;
  train.job = arguments.job;
  train.set = settings(arguments);
  train.quiet = arguments.quiet || arguments.format == Format::kJson;
  train.run_directory = folder.undisturbed();
  train.worker = arguments.worker;
  MUSTER_TRY(const auto ready, make_run(train, context));
  launch::Streams streams;
  streams.write_nothing = train.quiet;
  MUSTER_TRY(const pid_t pid, children.start(ready.worker, ready.words, streams));
  const auto ending = children.wait(pid, [] {});
  if (!ending.ok()) {
    children.kill_now(pid);
    // The cursor stands behind its progress.
    if (!train.quiet && context.console.width() > 0) context.console.line("");
    return ending.error();
  }
  if (*ending == launch::Ending{}) return read_outcome(folder.undisturbed(), context.files);
  folder.keep();
  const auto death = launch::obituary(*ending, "the worker", "");
  return Error(launch::kind_of(*ending).value_or(ErrorKind::kInternal),
               "the undisturbed run failed{}, so there is nothing to compare with; it is in {}",
               death ? ": " + death->sentence : "", folder.undisturbed());
}

void tell_text(const std::vector<std::string>& differ, const RunOutcome& outcome,
               const Disturbed& disturbed, double step_seconds, Console& console) {
  console.line("");
  for (const auto& line : pauses_text(disturbed.happened, step_seconds)) console.line(line);
  console.line("");
  if (disturbed.missed > 0) {
    console.line(
        fmt::format("the job ended before {} of those that were to kill themselves at a "
                    "point had come there",
                    disturbed.missed));
  }
  for (const auto& difference : differ) console.line("differs: " + difference);
  if (!differ.empty()) return;
  console.line(fmt::format("equal, bit for bit: weights {}, ledger {}, {} lines of metrics",
                           outcome.result.value("weights_hash", ""),
                           outcome.result.value("ledger", ""), outcome.records.size()));
}

Json report_json(const std::vector<std::string>& differ, const RunOutcome& outcome,
                 const Disturbed& disturbed, double step_seconds,
                 const std::optional<Error>& error) {
  Json report = {{"equal", differ.empty()},
                 {"differences", differ},
                 {"weights_hash", outcome.result.value("weights_hash", Json())},
                 {"faults", disturbed.happened.size()},
                 {"faults_left", disturbed.left},
                 {"faults_missed", disturbed.missed},
                 {"step_seconds", step_seconds},
                 {"held_up", pauses_json(disturbed.happened)},
                 {"timeline", timeline_json(disturbed.happened)}};
  if (error) {
    report["error"] = {{"kind", error_kind_name(error->kind())}, {"message", error->message()}};
  }
  return report;
}

// Equal runs prove only what was done to one of them.
std::optional<Error> too_few_faults(const Disturbed& disturbed, size_t wanted) {
  if (disturbed.left == 0) return std::nullopt;
  return Error(ErrorKind::kUsage,
               "the job ended with {} of {} faults left; give it more steps, or fewer faults",
               disturbed.left, wanted);
}

Outcome run_both(const VerifyArguments& arguments, DisturbPlan plan, Folder& folder,
                 Children& children, Context& context) {
  const bool json = arguments.format == Format::kJson;
  Console& console = context.console;
  if (!json) console.line("undisturbed, on one worker:");
  MUSTER_RETURN_IF_ERROR(console.flush());
  MUSTER_TRY(const auto expected, train_undisturbed(arguments, folder, children, context));
  plan.run = folder.disturbed();
  plan.steps = expected.result.value("steps", uint64_t{0});
  launch::schedule_faults(plan.faults, arguments.seed, plan.steps);

  if (!json) {
    console.line(fmt::format("\ndisturbed, on {} worker{}, {} fault{}, seed {}:", plan.workers,
                             plan.workers == 1 ? "" : "s", plan.faults.size(),
                             plan.faults.size() == 1 ? "" : "s", arguments.seed));
  }
  MUSTER_RETURN_IF_ERROR(console.flush());
  MUSTER_TRY(auto disturbed, disturb(plan, children, context.clock, [&](const std::string& line) {
               if (json) return;
               console.line(line);
               (void)console.flush();
             }));
  const auto outcome = read_outcome(plan.run, context.files);
  if (disturbed.exit_code != 0 || !outcome.ok()) {
    folder.keep();
    return Error(ErrorKind::kInternal,
                 "the disturbed run did not come to its end (exit code {}); its logs are in {}",
                 disturbed.exit_code, plan.run);
  }
  const double step_seconds = measure_pauses(disturbed.commits, disturbed.happened);
  const auto differ = differences(expected, *outcome);
  const auto error = differ.empty() ? too_few_faults(disturbed, plan.faults.size()) : std::nullopt;
  if (json) {
    console.line(report_json(differ, *outcome, disturbed, step_seconds, error).dump());
  } else {
    tell_text(differ, *outcome, disturbed, step_seconds, console);
  }
  if (!differ.empty()) {
    folder.keep();
    if (!json) console.line(fmt::format("NOT equal; both runs are in {}", folder.path()));
    return kDiffers;
  }
  if (!error) return 0;
  // Not returned: whoever prints it for programs would print a second document.
  console.error(error->message());
  return static_cast<int>(error->kind());
}

}  // namespace

Outcome verify(const VerifyArguments& arguments, Context& context) {
  MUSTER_TRY(auto plan, make_plan(arguments, context));
  MUSTER_TRY(auto folder, Folder::make(arguments.folder));
  // Inherited by the workers: fault_point.h.
  setenv("MUSTER_FAULTS", "1", 1);  // NOLINT(concurrency-mt-unsafe): there is one thread yet
  const launch::HeldSignals held;
  Children children(held);
  auto code = run_both(arguments, std::move(plan), folder, children, context);
  if (code.ok() || children.stopped_by() == 0) return code;
  context.console.error(code.error().kind(), code.error().message(),
                        arguments.format == Format::kJson);
  return 128 + children.stopped_by();
}

}  // namespace muster::cli
