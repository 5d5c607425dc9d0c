#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "muster/base/address.h"
#include "muster/launch/local_starter.h"
#include "muster/launch/supervisor.h"
#include "muster/roster/coordinator.h"
#include "muster/track/run_identity.h"

#include "tools/muster-launch/coordinator_file.h"
#include "tools/muster-launch/launch_commands.h"
#include "tools/muster-launch/report.h"
#include "tools/muster/find_run.h"
#include "tools/muster/ready_run.h"

namespace muster::cli {
namespace {

using namespace std::chrono_literals;

// A machine may have a run directory of its own if the job has checkpoint.to. Whether one that is
// there is ready the worker sees.
Status make_if_missing(const JoinArguments& arguments, FileSystem& files) {
  const auto& directory = arguments.run_directory;
  if (files.exists(directory + "/job.yaml")) return {};
  MUSTER_TRY(const auto offer, roster::fetch_offer(arguments.run.name, 5s));
  if (offer.run.empty()) return {};
  MUSTER_TRY(const auto status, roster::fetch_status(arguments.run.name, 5s));
  const auto name = std::filesystem::path(directory).lexically_normal();
  const auto last = name.has_filename() ? name.filename() : name.parent_path().filename();
  if (last.string() != status.job) {
    return Error(ErrorKind::kUsage,
                 "there is no run directory '{}', and one of {} must have that name", directory,
                 status.job);
  }
  MUSTER_TRY(const bool is_launchers,
             track::make_ready(files, directory, offer, []() -> Status { return {}; }));
  (void)is_launchers;
  return {};
}

Result<track::RunDirectory> run_of(const JoinArguments& arguments, FileSystem& files) {
  if (!is_address(arguments.run.name)) {
    if (!arguments.run_directory.empty()) {
      return Error(ErrorKind::kUsage, "--run goes with HOST:PORT; '{}' is a run already",
                   arguments.run.name);
    }
    return find_run(arguments.run, files);
  }
  if (arguments.run_directory.empty()) {
    return Error(ErrorKind::kUsage,
                 "where the run is must be said too: muster join {} --run DIR, a directory on "
                 "storage that all workers share, or, if the job has checkpoint.to, where this "
                 "machine shall have its own",
                 arguments.run.name);
  }
  MUSTER_RETURN_IF_ERROR(make_if_missing(arguments, files));
  return track::RunDirectory::open(files, arguments.run_directory);
}

// The coordinator hears of an end from the broken connection too, but not why.
constexpr auto kTellingTakes = 200ms;

}  // namespace

Outcome join(const JoinArguments& arguments, Context& context) {
  const launch::HeldSignals held;  // before there are threads
  const launch::Waker waker;
  MUSTER_TRY(const auto run, run_of(arguments, context.files));
  MUSTER_TRY(const auto address, find_coordinator(arguments.run, context.files));
  MUSTER_TRY(const auto job, load_run_job(run, {}, {}, "", context.files));
  MUSTER_TRY(const auto worker, worker_of_run(run, arguments.worker));
  MUSTER_TRY(const auto status, roster::fetch_status(address, 5s));
  if (status.job != job_name(run)) {
    return Error(ErrorKind::kUsage, "the coordinator at {} is that of {}, not of {}", address,
                 status.job, job_name(run));
  }
  if (!status.ended.empty()) {
    return Error(ErrorKind::kUsage, "{} has ended: {}", status.job, status.ended);
  }
  std::string host = arguments.host;
  if (host.empty()) {
    MUSTER_TRY(host, own_address_towards(host_of(address)));
  }
  const std::string id =
      arguments.id.empty() ? fmt::format("{}-{}", machine_name(), getpid()) : arguments.id;
  MUSTER_RETURN_IF_ERROR(context.files.create_directories(run.worker_logs()));
  // All others may have been stopped before.
  if (run.read_status().state == track::RunState::kInterrupted) {
    MUSTER_RETURN_IF_ERROR(say_running(run, context.clock));
  }

  launch::LocalOptions local{
      worker,
      {"train", "--run", run.path(), "--display", arguments.quiet ? "none" : "normal",
       "--coordinator", address, "--job-name", status.job, "--host", host},
      run.worker_logs()};
  if (!status.servers.empty()) {
    local.arguments.insert(local.arguments.end(), {"--servers", status.servers});
  }
  if (!arguments.site.empty()) local.sites[id] = arguments.site;
  launch::LocalStarter starter(std::move(local), held);
  launch::SupervisorOptions options;
  options.ids = {id};
  options.restarts.most = job.workers.restarts;
  options.stop_signal = SIGTERM;  // this worker leaves, the job goes on
  options.on_exit = [&](const std::string& who, int64_t process, const std::string& how) {
    (void)roster::send_exited(address, status.job, who, process, how, kTellingTakes);
  };
  options.ended = [&] {
    const auto now = roster::fetch_status(address, kTellingTakes);
    return now.ok() && !now->ended.empty();
  };
  context.console.note(fmt::format("worker {} joins {} at {}", id, status.job, address));
  MUSTER_RETURN_IF_ERROR(context.console.flush());
  launch::Supervisor supervisor(std::move(options), starter, held, waker, context.clock);
  MUSTER_TRY(const auto end, supervisor.run());
  if (end.failure) {
    return tell_failure(*end.failure, fmt::format("the logs are in {}", run.worker_logs()), false,
                        context)
        .exit_code;
  }
  return end.stopped_by == 0 ? 0 : 128 + end.stopped_by;
}

}  // namespace muster::cli
