#include "tools/muster-launch/report.h"

#include <signal.h>

#include "muster/base/text.h"

#include "tools/muster/run_facts.h"

namespace muster::cli {
namespace {

std::string name_of(const launch::WorkerFailure& failure) {
  return fmt::format("{} {}", failure.role, failure.id);
}

// Its own sentence: the last line it wrote, without what every program of ours puts in front.
std::string own_sentence(const launch::WorkerFailure& failure) {
  const auto& words = failure.last_words;
  std::string line = words.substr(words.rfind('\n') + 1);  // npos + 1 is 0
  for (const auto& name :
       {std::string("muster: "), fmt::format("muster-server {}: ", failure.id)}) {
    if (line.starts_with(name)) return line.substr(name.size());
  }
  return line;
}

ReportedError in_words(const launch::WorkerFailure& failure, const std::string& advice) {
  const std::string who = name_of(failure);
  if (const auto death = launch::exit_message(failure.ending, who, advice)) {
    return {death->kind, death->sentence, death->exit_code};
  }
  const std::string own = own_sentence(failure);
  return {launch::kind_of(failure.ending).value_or(ErrorKind::kInternal),
          fmt::format("{}{}; {}", who, own.empty() ? " " + failure.reason : ": " + own, advice),
          failure.ending.exit_code};
}

int tell_stop(const launch::JobEnd& end, const track::RunDirectory& run, const std::string& again,
              bool json, Context& context) {
  const std::string name = launch::signal_name(end.stopped_by);
  std::string sentence;
  if (!end.killed.empty()) {
    const bool many = end.killed.size() > 1;
    sentence = fmt::format("worker{} {} {}{} killed{}", many ? "s" : "", join_words(end.killed),
                           end.hurried ? "" : "did not leave in time and ", many ? "were" : "was",
                           end.hurried ? " at the second SIGINT" : "");
  } else if (end.failure) {
    sentence = fmt::format("{} could not leave as it should: {}", name_of(*end.failure),
                           own_sentence(*end.failure));
  }
  // A worker that left in order has said so itself.
  if (!sentence.empty()) {
    sentence = fmt::format("stopped by {}; {}; `{}` {}", name, sentence, again,
                           has_checkpoint(run, context.files)
                               ? "goes on from the newest checkpoint"
                               : "begins anew, for there is no checkpoint yet (checkpoint.every)");
    context.console.error(ErrorKind::kInterrupted, sentence, json);
  }
  if (run.read_status().state == track::RunState::kRunning) {
    (void)run.write_status(track::RunState::kInterrupted, fmt::format("stopped by {}", name),
                           run.read_status().step, context.clock);
  }
  return 128 + end.stopped_by;
}

}  // namespace

ReportedError tell_failure(const launch::WorkerFailure& failure, const std::string& advice,
                           bool json, Context& context) {
  ReportedError told = in_words(failure, advice);
  const bool many = failure.last_words.find('\n') != std::string::npos;
  // The sentence of one that could not start points at them.
  const bool only_these = launch::cannot_start(failure.ending) && !failure.last_words.empty();
  if (many || only_these) {
    context.console.note(
        fmt::format("the last words of {}, which failed first:", name_of(failure)));
    for (const auto& line : split(failure.last_words, '\n')) context.console.aside("  " + line);
  }
  context.console.error(told.kind, told.sentence, json);
  return told;
}

Status say_running(const track::RunDirectory& run, const Clock& clock) {
  return run.write_status(track::RunState::kRunning, "", run.read_status().step, clock);
}

int report_end(const launch::JobEnd& end, const track::RunDirectory& run, const std::string& again,
               bool json, Context& context) {
  if (end.finished) {
    // A program with a loop of its own may say after its training that something is wrong
    // (sys.exit("too bad")). What else goes wrong while workers leave does not count.
    const bool refused = end.failure && end.failure->role == launch::WorkerFailure::kWorker &&
                         launch::kind_of(end.failure->ending) == ErrorKind::kJob;
    if (!refused) return 0;
    return tell_failure(*end.failure, "the training itself is complete", json, context).exit_code;
  }
  if (end.stopped_by != 0) return tell_stop(end, run, again, json, context);
  if (end.failure) {
    const auto told = tell_failure(
        *end.failure, fmt::format("the logs are in {}; go on with `{}`", run.worker_logs(), again),
        json, context);
    (void)run.write_status(track::RunState::kFailed, told.sentence, run.read_status().step,
                           context.clock);
    return told.exit_code;
  }
  const std::string sentence =
      fmt::format("all workers have left before the job was finished; go on with `{}`", again);
  context.console.error(ErrorKind::kInterrupted, sentence, json);
  (void)run.write_status(track::RunState::kInterrupted, "all workers have left",
                         run.read_status().step, context.clock);
  return 128 + SIGTERM;
}

}  // namespace muster::cli
