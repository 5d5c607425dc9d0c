#include <signal.h>

#include <filesystem>

#include "muster/base/address.h"
#include "muster/base/boot_clock.h"
#include "muster/base/log.h"
#include "muster/config/load.h"
#include "muster/config/rounds.h"
#include "muster/config/table.h"
#include "muster/launch/process.h"
#include "muster/roster/coordinator.h"
#include "muster/roster/job_options.h"
#include "muster/track/run_events.h"
#include "muster/track/run_identity.h"

#include "tools/muster-launch/coordinator_file.h"
#include "tools/muster-launch/job_servers.h"
#include "tools/muster-launch/launch_commands.h"
#include "tools/muster-launch/report.h"
#include "tools/muster-launch/roster_events.h"
#include "tools/muster-launch/slots.h"
#include "tools/muster/attempt_events.h"
#include "tools/muster/find_run.h"
#include "tools/muster/job_sources.h"
#include "tools/muster/ready_run.h"
#include "tools/muster/run_facts.h"

namespace muster::cli {
namespace {

struct RunAndJob {
  track::RunDirectory run;
  config::Job job;
};

Result<RunAndJob> prepare(const CoordinatorArguments& arguments, Context& context) {
  if (context.files.exists(arguments.job + "/job.yaml")) {
    if (!arguments.set.empty() || !arguments.run_directory.empty()) {
      return Error(ErrorKind::kUsage,
                   "'{}' is a run: it is continued unchanged, without -s and --run-dir",
                   arguments.job);
    }
    MUSTER_TRY(auto run, find_run({arguments.job + "/", ""}, context.files));
    MUSTER_TRY(auto job, load_run_job(run, {}, {}, "", context.files));
    return RunAndJob{std::move(run), with_servers(std::move(job), {})};
  }
  MUSTER_TRY(const auto sources, job_sources(arguments.job, arguments.set, context.files));
  MUSTER_TRY(auto loaded, config::load_job(sources));
  for (const auto& warning : loaded.warnings) context.console.warning(warning);
  MUSTER_TRY(auto run, make_directory(loaded.job, arguments.run_directory, context));
  return RunAndJob{std::move(run), with_servers(std::move(loaded.job), {})};
}

// The registry of the job's parameter servers, which others start; null: it has none.
Result<std::unique_ptr<ps::RegistryService>> make_registry(const config::Job& job,
                                                           const std::string& listen,
                                                           const Clock& clock, Log& log,
                                                           const TellServers& tell) {
  if (!config::has_tables(job)) return std::unique_ptr<ps::RegistryService>();
  return start_registry(job, host_of(listen), clock, log, tell);
}

int wait_for_the_end(const launch::HeldSignals& held) {
  while (true) {
    const int number = sigwaitinfo(&held.set(), nullptr);
    if (number == SIGINT || number == SIGTERM || number == SIGHUP) return number;
    if (number == SIGTSTP) raise(SIGSTOP);
  }
}

}  // namespace

Outcome coordinate(const CoordinatorArguments& arguments, Context& context) {
  if (!arguments.listen.empty()) MUSTER_RETURN_IF_ERROR(check_listen(arguments.listen));
  MUSTER_TRY(const auto made, prepare(arguments, context));
  const auto& run = made.run;
  const launch::HeldSignals held;  // before there are threads
  MUSTER_TRY(const auto lock, run.lock());
  MUSTER_TRY(auto log, Log::to_file(run.launch_log_file(), LogLevel::kInfo, false));
  if (run.read_status().state != track::RunState::kFinished) {
    MUSTER_RETURN_IF_ERROR(say_running(run, context.clock));
  }
  roster::CoordinatorOptions options;
  options.roster = roster::options_of(made.job, job_name(run), 0);
  options.roster.term = roster::term_from_clock(context.clock);
  // Workers of one that ran here before may be training.
  options.roster.fresh = false;
  if (!arguments.listen.empty()) options.address = arguments.listen;
  if (!made.job.checkpoint.to.empty() && !config::has_tables(made.job)) {
    MUSTER_TRY(options.offer,
               track::begin_attempt(context.files, run,
                                    {.anew = false,
                                     .to = made.job.checkpoint.to,
                                     .has_checkpoint = has_checkpoint(run, context.files)}));
  }
  const BootClock boot_clock;
  const auto events = open_events(run, context);
  events->write(start_event("coordinator", 0));
  RosterEvents roster_events(*events);
  MUSTER_TRY(
      const auto registry,
      make_registry(made.job, options.address, boot_clock, log, [&events](const std::string& what) {
        events->write({{"event", "server"}, {"text", what}});
      }));
  if (registry != nullptr) options.servers = registry->address();
  // In the coordinator's thread, the only one that writes to standard output from now on.
  options.on_event = [&](const roster::Event& event) {
    log.info("{}", event.text);
    roster_events.event(event);
    context.console.line(fmt::format("{}  {}", utc_timestamp(context.clock.wall()), event.text));
    (void)context.console.flush();
  };
  options.on_roster = [&](const roster::Issued& issued) { roster_events.roster(issued); };
  options.on_gone = [&](const roster::Gone& gone) { roster_events.gone(gone); };
  std::error_code failed;
  const auto folder = std::filesystem::absolute(run.path(), failed).string();
  // What is to be said first is said before anybody can join.
  context.console.line(fmt::format("coordinator of {}", job_name(run)));
  MUSTER_RETURN_IF_ERROR(context.console.flush());
  MUSTER_TRY(auto coordinator, roster::Coordinator::start(std::move(options), context.clock));
  MUSTER_TRY(const auto coordinator_file,
             CoordinatorFile::write(context.files, run, coordinator->address(),
                                    registry != nullptr ? registry->address() : ""));
  context.console.aside(
      fmt::format("add workers with: muster join {} --run {}", coordinator->address(), folder));
  if (registry != nullptr) {
    context.console.aside(
        fmt::format("add parameter servers ({} are needed) with: muster-server "
                    "--coordinator {}",
                    made.job.tables.servers, coordinator->address()));
  }
  const int number = wait_for_the_end(held);
  events->write_last(end_event(coordinator->summary().finished, number, ""));
  coordinator.reset();
  context.console.note(fmt::format(
      "ended by {}; {}", launch::signal_name(number),
      registry == nullptr
          ? "workers continue, and look for another coordinator"
          : "parameter servers do not work without it. If the job is not finished, end workers and "
            "servers, and start all of them again: they resume from the newest checkpoint"));
  return 0;
}

}  // namespace muster::cli
