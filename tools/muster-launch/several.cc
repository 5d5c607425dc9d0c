#include <unistd.h>

#include <algorithm>
#include <utility>

#include "muster/base/log.h"
#include "muster/ckpt/snapshot.h"
#include "muster/launch/supervisor.h"
#include "muster/roster/coordinator.h"
#include "muster/roster/job_options.h"
#include "muster/track/metrics.h"

#include "tools/muster-launch/coordinator_file.h"
#include "tools/muster-launch/job_servers.h"
#include "tools/muster-launch/launch_commands.h"
#include "tools/muster-launch/report.h"
#include "tools/muster-launch/slots.h"
#include "tools/muster/ready_run.h"

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

Outcome run_job(const ReadyRun& ready, const SeveralArguments& several, const Slots& slots,
                bool json, Context& context) {
  const auto& run = ready.run;
  // Before any thread is there: all of them shall leave signals to this one.
  const launch::HeldSignals held;
  const launch::Waker waker;
  MUSTER_TRY(const auto lock, run.lock());
  MUSTER_RETURN_IF_ERROR(cut_metrics(run, context.files));
  MUSTER_RETURN_IF_ERROR(context.files.create_directories(run.worker_logs()));
  MUSTER_TRY(auto log, Log::to_file(run.launch_log_file(), LogLevel::kInfo, false));
  // What was finished may go on (-s passes=...): from here on only a worker says that it is.
  MUSTER_RETURN_IF_ERROR(say_running(run, context.clock));

  const auto& ids = slots.ids;
  roster::CoordinatorOptions how;
  how.address = slots.listen;
  how.roster = roster::options_of(ready.job, job_name(run), static_cast<int32_t>(ids.size()));
  how.roster.term = roster::term_from_clock(context.clock);
  how.on_event = [&](const roster::Event& event) {
    log.info("{}", event.text);
    waker.wake();
  };
  launch::KillRequests kill_requests;
  how.on_gone = [&](const roster::Gone& gone) {
    using roster::RemovalCause;
    if (gone.cause != RemovalCause::kHung && gone.cause != RemovalCause::kFaulty) return;
    kill_requests.add({gone.key.id, gone.process, gone.reason, gone.when});
    waker.wake();
  };
  MUSTER_TRY(const auto servers,
             JobServers::start(with_servers(ready.job, slots.machines), run, slots, held, log));
  const std::string registry = servers != nullptr ? servers->address() : "";
  how.servers = registry;
  MUSTER_TRY(const auto coordinator, roster::Coordinator::start(std::move(how), context.clock));
  log.info("the coordinator listens on {}", coordinator->address());
  MUSTER_TRY(const auto coordinator_file,
             CoordinatorFile::write(context.files, run, coordinator->address(), registry));

  const auto starter = make_starter(ready, slots, coordinator->address(), registry, held);
  WaitingNotice notice(*coordinator, ready.job.workers.min, context.console);
  launch::SupervisorOptions options;
  options.ids = ids;
  options.restarts.most = ready.job.workers.restarts;
  options.on_exit = [&](const std::string& id, int64_t process, const std::string& what) {
    coordinator->exited(id, process, what);
  };
  options.on_event = [&](const std::string& sentence) { log.info("{}", sentence); };
  // Not the coordinator's word: for it a job that was stopped is finished too, and whoever records
  // may still be busy with the last checkpoint when others have left.
  options.finished = [&] { return run.read_status().state == track::RunState::kFinished; };
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
  MUSTER_RETURN_IF_ERROR(context.console.flush());
  launch::Supervisor supervisor(std::move(options), *starter, held, waker, context.clock);
  MUSTER_TRY(const auto end, supervisor.run());
  // Those that others started shall not look for this coordinator for ever.
  if (coordinator->others(ids) > 0) {
    coordinator->end("its launcher has ended the job", end.killed.empty() ? 500ms : 50ms);
  }
  if (end.finished) hint_next(ready, context.console);
  return report_end(end, run, again(ready, several), json, context);
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
  return run_job(ready, arguments.several, slots, arguments.json, context);
}

Outcome resume_several(ResumeArguments arguments, Context& context) {
  if (arguments.several.workers == 0 && arguments.several.hosts.empty()) return needs_workers();
  MUSTER_TRY(const auto slots, plan_slots(arguments.several, context.files));
  arguments.several.workers = static_cast<int64_t>(slots.ids.size());
  MUSTER_TRY(const auto ready, choose_run(arguments, context));
  if (!ready) return 0;
  return run_job(*ready, arguments.several, slots, arguments.json, context);
}

}  // namespace muster::cli
