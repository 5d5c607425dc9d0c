#include "tools/muster-launch/verify/plan.h"

#include "muster/config/load.h"

#include "tools/muster/job_sources.h"
#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

using launch::FaultKind;

constexpr const char* kHangTimeout = "workers.hang_timeout";

bool waits_for_hang_timeout(const std::vector<launch::Fault>& faults) {
  return has_kind(faults, FaultKind::kHang) || has_kind(faults, FaultKind::kSlowDisk);
}

}  // namespace

Added options_for(const std::vector<launch::Fault>& faults, bool given) {
  if (given || !waits_for_hang_timeout(faults)) return {};
  return {{fmt::format("{}=3s", kHangTimeout)},
          {fmt::format("{} is set to 3s for the faults hang and slow-disk", kHangTimeout)}};
}

std::vector<std::string> settings(const VerifyArguments& arguments, const Added& added) {
  auto set = arguments.set;
  set.insert(set.end(), added.set.begin(), added.set.end());
  set.insert(set.end(), {"track.every=1 steps", "workers.restarts=100000"});
  return set;
}

Result<VerifyPlan> make_plan(const VerifyArguments& arguments, Context& context) {
  VerifyPlan plan;
  auto& disturb = plan.disturb;
  MUSTER_TRY(disturb.faults, launch::parse_faults(arguments.faults));
  MUSTER_TRY(const auto given, job_sources(arguments.job, arguments.set, context.files));
  MUSTER_TRY(const auto read, config::load_job(given));
  plan.added = options_for(disturb.faults, read.places.contains(kHangTimeout));
  const auto set = settings(arguments, plan.added);
  MUSTER_TRY(const auto sources, job_sources(arguments.job, set, context.files));
  MUSTER_TRY(const auto loaded, config::load_job(sources));
  MUSTER_TRY(disturb.worker, find_worker(WorkerPlaces::of_process(arguments.worker)));
  MUSTER_TRY(disturb.muster, find_program("muster"));
  disturb.job = {arguments.job};
  for (const auto& option : set) disturb.job.insert(disturb.job.end(), {"-s", option});
  disturb.workers = static_cast<int>(arguments.workers);
  disturb.lease = loaded.job.workers.lease;
  disturb.hang_timeout = loaded.job.workers.hang_timeout;
  disturb.lanes = static_cast<int>(loaded.job.lanes);
  disturb.calm = arguments.calm;
  if (has_kind(disturb.faults, FaultKind::kHang) && disturb.hang_timeout <= 0) {
    return Error(ErrorKind::kUsage,
                 "--faults hang: with {}: 0 a worker that hangs is never removed; set it, or leave "
                 "hang out",
                 kHangTimeout);
  }
  return plan;
}

}  // namespace muster::cli
