#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "muster/base/log.h"
#include "muster/ckpt/snapshot.h"
#include "muster/config/rounds.h"
#include "muster/launch/process.h"
#include "muster/launch/supervisor.h"
#include "muster/roster/coordinator.h"
#include "muster/roster/job_options.h"
#include "muster/track/metrics.h"
#include "muster/track/run_events.h"
#include "muster/track/run_identity.h"

#include "tools/muster-launch/coordinator_file.h"
#include "tools/muster-launch/job_servers.h"
#include "tools/muster-launch/launch_commands.h"
#include "tools/muster-launch/report.h"
#include "tools/muster-launch/roster_events.h"
#include "tools/muster-launch/slots.h"
#include "tools/muster/attempt_events.h"
#include "tools/muster/ready_run.h"
#include "tools/muster/run_facts.h"
#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

using namespace std::chrono_literals;

// Says that the job waits for more workers: once each time, and not for the moment that a restart
// takes.
class WaitingNotice {
 public:
  WaitingNotice(const roster::Coordinator& coordinator, int64_t least, Console& console)
      : coordinator_(coordinator), least_(least), console_(console) {}

  std::optional<Moment> look(Moment now) {
    const auto summary = coordinator_.summary();
    if (!summary.waiting || summary.ended) {
      since_.reset();
      told_ = false;
      return std::nullopt;
    }
    if (told_) return std::nullopt;
    if (!since_) since_ = now;
    if (now < *since_ + kPatience) return *since_ + kPatience;
    told_ = true;
    // The progress line of whoever trained is still on the screen.
    if (isatty(STDERR_FILENO) == 1) console_.aside("");
    console_.note(
        fmt::format("waiting for workers: {} of at least {} have joined; `muster join {}` "
                    "adds one",
                    summary.members, least_, coordinator_.address()));
    return std::nullopt;
  }

 private:
  static constexpr auto kPatience = 1s;
  const roster::Coordinator& coordinator_;
  int64_t least_;
  Console& console_;
  std::optional<Moment> since_;
  bool told_ = false;
};

std::string again(const ReadyRun& ready, const SeveralArguments& several) {
  return several.hosts.empty()
             ? fmt::format("{} --workers {}{}", resume_command(ready.run), several.workers,
                           several.sites > 0 ? fmt::format(" --sites {}", several.sites) : "")
             : fmt::format("{} --hosts {}", resume_command(ready.run), several.hosts);
}

// The job will go on from its newest checkpoint, perhaps with another schedule (-s passes=...).
// What the metrics tell of later steps is taken away now, while nobody else is there; workers never
// take anything away (track/metrics.h).
Status cut_metrics(const track::RunDirectory& run, FileSystem& files) {
  if (!files.exists(run.metrics_file())) return {};
  ckpt::SnapshotStore store(files, run.checkpoints(), 1, false);
  MUSTER_TRY(const auto snapshots, store.list());
  MUSTER_TRY(auto metrics, track::MetricsWriter::open(files, run.metrics_file()));
  return metrics.truncate_after(snapshots.empty() ? 0 : snapshots.back().step);
}

// What workers on hosts without this run directory are told; nothing if they cannot have their own.
Result<RunOffer> make_offer(const ReadyRun& ready, FileSystem& files) {
  if (ready.job.checkpoint.to.empty() || config::has_tables(ready.job)) return RunOffer();
  return track::begin_attempt(files, ready.run,
                              {.anew = true,
                               .to = ready.job.checkpoint.to,
                               .has_checkpoint = has_checkpoint(ready.run, files)});
}

// Runs a program to its end. SIGINT, SIGTERM and SIGHUP end it too.
Result<launch::Ending> run_to_end(const std::string& program, const std::vector<std::string>& words,
                                  const launch::HeldSignals& held) {
  launch::Streams streams;
  streams.read_nothing = true;
  streams.write_nothing = true;
  MUSTER_TRY(const pid_t pid, launch::spawn(program, words, held, streams));
  const timespec moment{.tv_sec = 0, .tv_nsec = 50'000'000};
  while (true) {
    if (const auto ending = launch::reap(pid)) return *ending;
    const int number = sigtimedwait(&held.set(), nullptr, &moment);
    if (number == SIGINT || number == SIGTERM || number == SIGHUP) kill(pid, SIGTERM);
  }
}

// The job is finished, and whoever recorded at its end did so in the run directory of another host:
// the result, the metrics and the newest checkpoint come from the copy. The run must not be locked.
Status fetch_result(const ReadyRun& ready, uint64_t step, const launch::HeldSignals& held,
                    Context& context) {
  const auto& to = ready.job.checkpoint.to;
  const auto& run = ready.run;
  const auto failed = [&](std::string_view why) {
    return Error(ErrorKind::kIo,
                 "the job is finished on a host with a run directory of its own, but its result "
                 "was not fetched: {}; try `muster runs fetch {} --run-dir {}`",
                 why, to, run.path());
  };
  const auto program = find_program("muster-data");
  if (!program.ok()) return failed(program.error().message());
  const auto ending = run_to_end(*program, {"runs", "fetch", to, "--run-dir", run.path()}, held);
  if (!ending.ok()) return failed(ending.error().message());
  if (ending->signal != 0 || ending->exit_code != 0) return failed(launch::ending_text(*ending));
  const auto result = run.read_result();
  if (!result || result->value("steps", uint64_t{0}) != step) {
    return failed(fmt::format("the copy in {} has no result of step {}", to, step));
  }
  return run.write_status(track::RunState::kFinished, "", static_cast<int64_t>(step),
                          context.clock);
}

Outcome train_with_events(const ReadyRun& ready, const SeveralArguments& several,
                          const Slots& slots, bool json, track::RunLock lock,
                          const launch::HeldSignals& held, track::RunEventLog& events,
                          Context& context) {
  const auto& run = ready.run;
  const launch::Waker waker;
  MUSTER_RETURN_IF_ERROR(cut_metrics(run, context.files));
  MUSTER_RETURN_IF_ERROR(context.files.create_directories(run.worker_logs()));
  MUSTER_TRY(auto log, Log::to_file(run.launch_log_file(), LogLevel::kInfo, false));
  // What was finished may go on (-s passes=...): from here on only a worker says that it is.
  MUSTER_RETURN_IF_ERROR(say_running(run, context.clock));

  const auto& ids = slots.ids;
  RosterEvents roster_events(events);
  roster::CoordinatorOptions how;
  how.address = slots.listen;
  how.roster = roster::options_of(ready.job, job_name(run), static_cast<int32_t>(ids.size()));
  how.roster.term = roster::term_from_clock(context.clock);
  how.on_event = [&](const roster::Event& event) {
    log.info("{}", event.text);
    roster_events.event(event);
    waker.wake();
  };
  how.on_roster = [&](const roster::Issued& issued) { roster_events.roster(issued); };
  launch::KillRequests kill_requests;
  how.on_gone = [&](const roster::Gone& gone) {
    using roster::RemovalCause;
    roster_events.gone(gone);
    if (gone.cause != RemovalCause::kHung && gone.cause != RemovalCause::kFaulty) return;
    kill_requests.add({gone.key.id, gone.process, gone.reason, gone.when});
    waker.wake();
  };
  ServerNews server_news;
  server_news.event = [&events](const std::string& what) {
    events.write({{"event", "server"}, {"text", what}});
  };
  server_news.warning = [&context](const std::string& what) {
    // The progress line of whoever trains is on the screen.
    if (isatty(STDERR_FILENO) == 1) context.console.aside("");
    context.console.warning(what);
  };
  MUSTER_TRY(const auto servers, JobServers::start(with_servers(ready.job, slots.machines), run,
                                                   slots, held, log, std::move(server_news)));
  const std::string registry = servers != nullptr ? servers->address() : "";
  how.servers = registry;
  MUSTER_TRY(how.offer, make_offer(ready, context.files));
  const bool may_be_elsewhere = !how.offer.run.empty();
  MUSTER_TRY(const auto coordinator, roster::Coordinator::start(std::move(how), context.clock));
  log.info("the coordinator listens on {}", coordinator->address());
  MUSTER_TRY(const auto coordinator_file,
             CoordinatorFile::write(context.files, run, coordinator->address(), registry));

  const auto starter = make_starter(ready, slots, coordinator->address(), registry, held);
  WaitingNotice notice(*coordinator, ready.job.workers.min, context.console);
  launch::SupervisorOptions options;
  options.ids = ids;
  options.restarts.most = ready.job.workers.restarts;
  bool failed_at_end = false;
  options.on_exit = [&](const std::string& id, int64_t process, const std::string& what) {
    events.write({{"event", "exit"}, {"worker", id}, {"how", what}});
    failed_at_end |= coordinator->summary().ended && what != launch::ending_text({});
    coordinator->exited(id, process, what);
  };
  options.on_event = [&](const std::string& sentence) { log.info("{}", sentence); };
  // Whoever records says so in its run directory. If that is another host's, the workers have told
  // the coordinator, after everything was written. They also do if the copy could not be completed,
  // and then the one that recorded fails.
  const auto is_here = [&] { return run.read_status().state == track::RunState::kFinished; };
  options.finished = [&] {
    return is_here() || (may_be_elsewhere && !failed_at_end && coordinator->summary().finished);
  };
  options.ended = [&] { return coordinator->summary().ended; };
  options.can_go_on = [&](size_t slots) {
    return slots + coordinator->others(ids) >= static_cast<size_t>(ready.job.workers.min);
  };
  options.take_kill_requests = [&] { return kill_requests.take(); };
  options.look = [&](Moment now) {
    const auto again = notice.look(now);
    const auto sooner = servers != nullptr ? servers->look(now) : std::nullopt;
    return again && sooner ? std::min(again, sooner) : (again ? again : sooner);
  };
  if (servers != nullptr) {
    options.take_failure = [&] { return servers->take_failure(); };
    options.pass_on = [&](int number) { servers->send(number); };
  }
  MUSTER_RETURN_IF_ERROR(context.console.flush());
  launch::Supervisor supervisor(std::move(options), *starter, held, waker, context.clock);
  MUSTER_TRY(auto end, supervisor.run());
  // Those that others started shall not look for this coordinator for ever.
  if (coordinator->others(ids) > 0) {
    coordinator->end("its launcher has ended the job", end.killed.empty() ? 500ms : 50ms);
  }
  if (end.finished && !is_here()) {
    end.finished = !end.failure;
    if (end.finished) {
      const uint64_t step = coordinator->status().step;
      {
        const auto released = std::move(lock);
      }
      MUSTER_RETURN_IF_ERROR(fetch_result(ready, step, held, context));
    }
  }
  events.write_last(end_event(end.finished, end.stopped_by,
                              end.failure ? end.failure->id + " " + end.failure->reason : ""));
  if (end.finished) hint_next(ready, context.console);
  return report_end(end, run, again(ready, several), json, context);
}

// `command`: train or resume.
Outcome run_job(std::string_view command, const ReadyRun& ready, const SeveralArguments& several,
                const Slots& slots, bool json, Context& context) {
  // Before any thread is there: all of them shall leave signals to this one.
  const launch::HeldSignals held;
  MUSTER_TRY(auto lock, ready.run.lock());
  const auto events = open_events(ready.run, context);
  events->write(start_event(command, static_cast<int64_t>(slots.ids.size())));
  auto outcome =
      train_with_events(ready, several, slots, json, std::move(lock), held, *events, context);
  // Nothing is written if the end is there.
  if (!outcome.ok()) events->write_last(end_event(false, 0, outcome.error().message()));
  return outcome;
}

Error needs_workers() {
  return Error(ErrorKind::kUsage,
               "--listen goes with --workers or --hosts; `muster coordinator` listens alone");
}

}  // namespace

// The hosts come first: what is wrong with them is said before anything is made on the disk.
Outcome train_several(TrainArguments arguments, Context& context) {
  if (arguments.several.workers == 0 && arguments.several.hosts.empty()) return needs_workers();
  MUSTER_TRY(const auto slots, plan_slots(arguments.several, context.files));
  arguments.several.workers = static_cast<int64_t>(slots.ids.size());
  MUSTER_TRY(const auto ready, make_run(arguments, context));
  return run_job("train", ready, arguments.several, slots, arguments.json, context);
}

Outcome resume_several(ResumeArguments arguments, Context& context) {
  if (arguments.several.workers == 0 && arguments.several.hosts.empty()) return needs_workers();
  MUSTER_TRY(const auto slots, plan_slots(arguments.several, context.files));
  arguments.several.workers = static_cast<int64_t>(slots.ids.size());
  MUSTER_TRY(const auto ready, choose_run(arguments, context));
  if (!ready) return 0;
  return run_job("resume", *ready, arguments.several, slots, arguments.json, context);
}

}  // namespace muster::cli
