#include "tools/muster-launch/verify/plan.h"

#include <algorithm>
#include <array>

#include "muster/config/load.h"
#include "muster/config/rounds.h"
#include "muster/sync/recipe.h"

#include "tools/muster-launch/job_servers.h"
#include "tools/muster-launch/verify/fault_target.h"
#include "tools/muster/job_sources.h"
#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

using launch::FaultKind;

constexpr const char* kHangTimeout = "workers.hang_timeout";

bool waits_for_hang_timeout(const std::vector<launch::Fault>& faults) {
  return has_kind(faults, FaultKind::kHang) || has_kind(faults, FaultKind::kSlowDisk);
}

bool waits_for_audit(const std::vector<launch::Fault>& faults) {
  return has_kind(faults, FaultKind::kFlip) || has_kind(faults, FaultKind::kLie);
}

bool waits_for_checkpoint(const std::vector<launch::Fault>& faults) {
  return waits_for_audit(faults) || has_point(faults, FaultPoint::kSave);
}

// An option that some kinds of faults need.
struct Needed {
  const char* key;
  const char* value;
  bool (*by)(const std::vector<launch::Fault>& faults);
  const char* kinds;
};
constexpr std::array<Needed, 4> kNeeded = {{
    {kHangTimeout, "3s", waits_for_hang_timeout, "hang and slow-disk"},
    {"audit.every", "20", waits_for_audit, "flip and lie"},
    {"audit.lanes", "40", waits_for_audit, "flip and lie"},
    {"checkpoint.every", "10 steps", waits_for_checkpoint, "flip, lie and kill-server@save"},
}};

// Links are between hosts: a cut is to part two workers, and no others.
Status check_cut(const DisturbPlan& plan) {
  if (static_cast<size_t>(plan.workers) > lab::kMostHosts) {
    return Error(ErrorKind::kUsage, "--faults cut goes with at most {} workers", lab::kMostHosts);
  }
  if (plan.hosts.empty() || plan.hosts.size() >= static_cast<size_t>(plan.workers)) return {};
  return Error(
      ErrorKind::kUsage,
      "--faults cut needs a host for each of the {} workers, and the file of --lab has {}; "
      "add hosts, or leave cut out",
      plan.workers, plan.hosts.size());
}

// Faults of parameter servers need some, and those that survive them.
Status check_servers(const DisturbPlan& disturb, const config::Job& job) {
  const bool hit = std::ranges::any_of(
      disturb.faults, [](const launch::Fault& fault) { return hits_server(fault.kind); });
  if (hit && (disturb.servers < 2 || job.tables.copies < 2)) {
    return Error(ErrorKind::kUsage,
                 "--faults kill-server and suspend-server need at least two parameter servers "
                 "(--servers 2), with tables.copies 2");
  }
  if (has_point(disturb.faults, FaultPoint::kCopy) && disturb.servers < 3) {
    return Error(
        ErrorKind::kUsage,
        "--faults kill-server@copy needs three parameter servers (--servers 3): one joins, "
        "one dies while it sends copies, and one has all shards");
  }
  if (disturb.servers > 0 && has_kind(disturb.faults, FaultKind::kRestart)) {
    return Error(ErrorKind::kUsage,
                 "--faults restart: parameter servers end with their coordinator; leave restart "
                 "out, or set --servers 0");
  }
  return {};
}

}  // namespace

Added options_for(const std::vector<launch::Fault>& faults,
                  const std::function<bool(const std::string& key)>& given) {
  Added added;
  for (const auto& needed : kNeeded) {
    if (given(needed.key) || !needed.by(faults)) continue;
    added.set.push_back(fmt::format("{}={}", needed.key, needed.value));
    added.sentences.push_back(
        fmt::format("{} is set to {} for the faults {}", needed.key, needed.value, needed.kinds));
  }
  return added;
}

std::vector<std::string> settings(const VerifyArguments& arguments, const Added& added) {
  auto set = arguments.set;
  if (arguments.servers > 0) set.push_back(fmt::format("tables.servers={}", arguments.servers));
  set.insert(set.end(), added.set.begin(), added.set.end());
  // Both runs cannot have one copy.
  set.insert(set.end(), {"checkpoint.to=", "track.every=1 steps", "workers.restarts=100000"});
  return set;
}

Result<VerifyPlan> make_plan(const VerifyArguments& arguments, Context& context) {
  VerifyPlan plan;
  auto& disturb = plan.disturb;
  MUSTER_TRY(disturb.faults, launch::parse_faults(arguments.faults));
  MUSTER_TRY(const auto given, job_sources(arguments.job, arguments.set, context.files));
  MUSTER_TRY(const auto read, config::load_job(given));
  plan.added = options_for(disturb.faults,
                           [&](const std::string& key) { return read.places.contains(key); });
  const auto set = settings(arguments, plan.added);
  MUSTER_TRY(const auto sources, job_sources(arguments.job, set, context.files));
  MUSTER_TRY(const auto loaded, config::load_job(sources));
  if (loaded.job.sync.strategy == "auto") {
    return Error(ErrorKind::kUsage,
                 "sync.strategy auto measures machines, and verify has none; name a strategy (-s "
                 "sync.strategy=lockstep)");
  }
  MUSTER_TRY(disturb.worker, find_worker(WorkerPlaces::of_process(arguments.worker)));
  MUSTER_TRY(disturb.muster, find_program("muster"));
  disturb.job = {arguments.job};
  for (const auto& option : set) disturb.job.insert(disturb.job.end(), {"-s", option});
  disturb.workers = static_cast<int>(arguments.workers);
  disturb.sites = static_cast<int>(arguments.sites);
  disturb.servers =
      config::has_tables(loaded.job) ? with_servers(loaded.job, {}).tables.servers : 0;
  MUSTER_RETURN_IF_ERROR(check_servers(disturb, loaded.job));
  plan.asynchronous = config::is_asynchronous(loaded.job.sync);
  disturb.lease = loaded.job.workers.lease;
  disturb.hang_timeout = loaded.job.workers.hang_timeout;
  const int64_t units = sync::units_of(loaded.job);
  disturb.lanes = static_cast<int>(units);
  if (disturb.sites > 0 && sync::is_periodic(loaded.job.sync.strategy)) {
    const int64_t sites = std::min<int64_t>(disturb.sites, units);
    disturb.lanes = static_cast<int>(sites * sync::lanes_per_unit(loaded.job));
  }
  disturb.calm = arguments.calm;
  if (!arguments.lab.empty()) {
    MUSTER_TRY(disturb.hosts, lab::read_hosts_file(context.files, arguments.lab));
  }
  if (has_kind(disturb.faults, FaultKind::kCut)) MUSTER_RETURN_IF_ERROR(check_cut(disturb));
  if (has_kind(disturb.faults, FaultKind::kLie) && sync::has_rounds(loaded.job.sync.strategy)) {
    return Error(
        ErrorKind::kUsage,
        "--faults lie: with sync.strategy {} lanes are not compared, so a wrong one is not "
        "found; leave lie out",
        loaded.job.sync.strategy);
  }
  if (has_kind(disturb.faults, FaultKind::kHang) && disturb.hang_timeout <= 0) {
    return Error(ErrorKind::kUsage,
                 "--faults hang: with {}: 0 a worker that hangs is never removed; set it, or leave "
                 "hang out",
                 kHangTimeout);
  }
  return plan;
}

}  // namespace muster::cli
