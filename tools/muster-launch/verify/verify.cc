// verify: trains a job twice, undisturbed on one worker and with faults on several, and compares.
// Of an asynchronous job, the disturbed run is compared with its replay.
//
//   plan       the job, the faults, and the options that they need
//   children   what is started, and ended with us
//   training   the processes of the disturbed training
//   disturb    when a fault falls, and its consequences
//   fault_target   whom a fault hits
//   ongoing    faults whose cause lasts, until it is taken away
//   hung_process, network   a worker that hangs; workers that cannot reach each other
//   awaited    who of them has not rejoined yet
//   commits    how far the job is
//   stderr_capture   what the disturbed training says
//   compare    what the two runs came to, and in what they differ
//   accused    whom audits found faulty, and whether it was those that verify made faulty
//   timeline   what happened and how long it stalled the others, in words
#include "tools/muster-launch/verify/verify.h"

#include <stdlib.h>

#include <filesystem>
#include <optional>

#include "muster/base/scratch_directory.h"
#include "muster/base/text.h"
#include "muster/track/start_script.h"

#include "tools/muster-launch/verify/accused.h"
#include "tools/muster-launch/verify/children.h"
#include "tools/muster-launch/verify/compare.h"
#include "tools/muster-launch/verify/disturb.h"
#include "tools/muster-launch/verify/hung_process.h"
#include "tools/muster-launch/verify/network.h"
#include "tools/muster-launch/verify/plan.h"
#include "tools/muster/ready_run.h"

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
      return Folder(wanted, std::nullopt);
    }
    MUSTER_TRY(auto scratch, ScratchDirectory::make("muster-verify"));
    std::string path = scratch.path();
    return Folder(std::move(path), std::move(scratch));
  }
  void keep() {
    if (scratch_) scratch_->release();
  }
  std::string undisturbed() const { return path_ + "/undisturbed"; }
  std::string disturbed() const { return path_ + "/disturbed"; }
  const std::string& path() const { return path_; }

 private:
  Folder(std::string path, std::optional<ScratchDirectory> scratch)
      : path_(std::move(path)), scratch_(std::move(scratch)) {}
  std::string path_;
  std::optional<ScratchDirectory> scratch_;  // one that we made ourselves
};

// What `muster train` does with one worker, but for who keeps the door. Told to stop, the
// worker would save, and advise to go on with a run whose folder is gone a moment later. Nobody
// goes on with half a comparison, so it is killed: it has nothing to save, and says nothing.
Result<RunOutcome> train_undisturbed(const VerifyArguments& arguments, const Added& added,
                                     Folder& folder, Children& children, Context& context) {
  TrainArguments train;
  train.job = arguments.job;
  train.set = settings(arguments, added);
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
  const auto death = launch::exit_message(*ending, "the worker", "");
  return Error(launch::kind_of(*ending).value_or(ErrorKind::kInternal),
               "the undisturbed run failed{}, so there is nothing to compare with; it is in {}",
               death ? ": " + death->sentence : "", folder.undisturbed());
}

// An asynchronous run has other bits each time; but it must be what its own record says.
Result<std::vector<std::string>> differences_from_replay(const RunOutcome& expected,
                                                         const RunOutcome& outcome,
                                                         const DisturbPlan& plan, bool quiet,
                                                         Children& children, Console& console) {
  auto differ = differences_of_work(expected, outcome);
  if (!quiet) console.line("\nreplayed, on one worker:");
  MUSTER_RETURN_IF_ERROR(console.flush());
  launch::Streams streams;
  streams.write_nothing = quiet;
  MUSTER_TRY(const pid_t pid,
             children.start(plan.worker, {"replay", "--run", plan.run, "--checkpoint", "newest"},
                            streams));
  MUSTER_TRY(const auto ending, children.wait(pid, [] {}));
  const int code = exit_code_of(ending);
  if (code == kDiffers) {
    differ.emplace_back("weights or rows: other ones when the run is computed again");
  } else if (code != 0) {
    differ.push_back(fmt::format("the run cannot be computed again (exit code {})", code));
  }
  return differ;
}

void tell_text(const std::vector<std::string>& differ, const RunOutcome& outcome,
               const Disturbed& disturbed, double step_seconds, bool asynchronous,
               Console& console) {
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
  if (asynchronous) {
    console.line(fmt::format("equal, bit for bit, to its replay: weights {}; ledger {}",
                             outcome.result.value("weights_hash", ""),
                             outcome.result.value("ledger", "")));
    return;
  }
  console.line(fmt::format("equal, bit for bit: weights {}, ledger {}, {} lines of metrics",
                           outcome.result.value("weights_hash", ""),
                           outcome.result.value("ledger", ""), outcome.records.size()));
}

Json report_json(const std::vector<std::string>& differ, const RunOutcome& outcome,
                 const Disturbed& disturbed, double step_seconds, const Added& added,
                 const std::optional<Error>& error) {
  Json report = {{"equal", differ.empty()},
                 {"differences", differ},
                 {"weights_hash", outcome.result.value("weights_hash", Json())},
                 {"faults", disturbed.happened.size()},
                 {"faults_left", disturbed.left},
                 {"faults_missed", disturbed.missed},
                 {"options_set", added.set},
                 {"step_seconds", step_seconds},
                 {"stalled", pauses_json(disturbed.happened)},
                 {"rejoined", rejoins_json(disturbed.happened)},
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

// What the faults need, before anything is trained: this process has one thread yet.
Status prepare(DisturbPlan& plan, const Folder& folder, std::optional<Network>& network,
               Children& children) {
  if (has_kind(plan.faults, launch::FaultKind::kHang)) {
    MUSTER_RETURN_IF_ERROR(check_tracing(children));
  }
  const bool given = !plan.hosts.empty();
  if (!given && !has_kind(plan.faults, launch::FaultKind::kCut)) return {};
  auto made = Network::make(plan.workers, plan.hosts, folder.path(), plan.worker);
  if (!made.ok()) {
    if (made.error().kind() != ErrorKind::kUsage) return std::move(made).error();
    return Error(ErrorKind::kUsage, "{}: {}; or leave {} out", given ? "--lab" : "--faults cut",
                 made.error().message(), given ? "it" : "cut");
  }
  network.emplace(*std::move(made));
  plan.host = Network::address();
  plan.worker = network->worker();
  plan.network = &*network;
  return {};
}

Outcome run_both(const VerifyArguments& arguments, VerifyPlan wanted, Folder& folder,
                 std::optional<Network>& network, Children& children, Context& context) {
  DisturbPlan& plan = wanted.disturb;
  MUSTER_RETURN_IF_ERROR(prepare(plan, folder, network, children));
  const bool json = arguments.format == Format::kJson;
  Console& console = context.console;
  if (!json) {
    for (const auto& sentence : wanted.added.sentences) console.line(sentence);
    console.line("undisturbed, on one worker:");
  }
  MUSTER_RETURN_IF_ERROR(console.flush());
  MUSTER_TRY(const auto expected,
             train_undisturbed(arguments, wanted.added, folder, children, context));
  plan.run = folder.disturbed();
  plan.steps = expected.result.value("steps", uint64_t{0});
  launch::schedule_faults(plan.faults, arguments.seed, plan.steps);

  if (!json) {
    console.line(fmt::format("\ndisturbed, on {}, {}, seed {}:", counted(plan.workers, "worker"),
                             counted(plan.faults.size(), "fault"), arguments.seed));
  }
  MUSTER_RETURN_IF_ERROR(console.flush());
  MUSTER_TRY(auto disturbed,
             disturb(plan, children, context.files, context.clock, [&](const std::string& line) {
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
  std::vector<std::string> differ;
  if (wanted.asynchronous) {
    MUSTER_TRY(differ, differences_from_replay(expected, *outcome, plan, json, children, console));
  } else {
    differ = differences(expected, *outcome);
  }
  MUSTER_TRY(const auto accused, read_accused(context.files, plan.run + "/workers"));
  for (auto& wrong : wrong_accusations(accused, disturbed.happened)) {
    differ.push_back(std::move(wrong));
  }
  const auto error = differ.empty() ? too_few_faults(disturbed, plan.faults.size()) : std::nullopt;
  if (json) {
    console.line(
        report_json(differ, *outcome, disturbed, step_seconds, wanted.added, error).dump());
  } else {
    tell_text(differ, *outcome, disturbed, step_seconds, wanted.asynchronous, console);
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

Outcome verify(const VerifyArguments& given, Context& context) {
  VerifyArguments arguments = given;
  std::optional<Folder> folder;
  if (!arguments.program.empty()) {
    MUSTER_TRY(const auto program, asked_program(arguments.program, context));
    MUSTER_TRY(auto made, Folder::make(arguments.folder));
    folder.emplace(std::move(made));
    arguments.job = folder->path() + "/job.yaml";
    MUSTER_RETURN_IF_ERROR(write_file_atomically(context.files, arguments.job, program.job));
    MUSTER_TRY(arguments.worker,
               track::write_start_script(context.files, folder->path(), program.start));
  }
  MUSTER_TRY(auto plan, make_plan(arguments, context));
  if (!folder) {
    MUSTER_TRY(auto made, Folder::make(arguments.folder));
    folder.emplace(std::move(made));
  }
  // Inherited by the workers: fault_point.h.
  setenv("MUSTER_FAULTS", "1", 1);  // NOLINT(concurrency-mt-unsafe): there is one thread yet
  const launch::HeldSignals held;
  std::optional<Network> network;  // outlives the children, which are in it
  Children children(held);
  auto code = run_both(arguments, std::move(plan), *folder, network, children, context);
  if (code.ok() || children.stopped_by() == 0) return code;
  context.console.error(code.error().kind(), code.error().message(),
                        arguments.format == Format::kJson);
  return 128 + children.stopped_by();
}

}  // namespace muster::cli
