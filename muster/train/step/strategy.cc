#include "muster/train/step/strategy.h"

#include "muster/base/check.h"
#include "muster/sync/recipe.h"
#include "muster/train/step/local_then_lockstep.h"
#include "muster/train/step/lockstep.h"
#include "muster/train/step/periodic.h"
#include "muster/train/step/server_rounds.h"
#include "muster/train/step/server_steps.h"

namespace muster::train {

// NOLINTNEXTLINE(performance-unnecessary-value-param): others keep it
void Strategy::join_site(comm::Group& /*site*/, std::vector<int> /*units*/) {
  MUSTER_CHECK(false, "this strategy has no replicas");
}

std::vector<std::string> state_names(const config::Job& job, const optim::Optimizer& inner) {
  if (sync::is_on_servers(job.sync.strategy)) return {};  // it is in the rows
  return sync::is_periodic(job.sync.strategy) ? Periodic::state_names(job, inner)
                                              : inner.state_names();
}

std::vector<std::string> work_state_names(const config::Job& job, const optim::Optimizer& inner) {
  if (sync::is_on_servers(job.sync.strategy)) return {};
  auto names = inner.state_names();
  if (sync::sends_gradients(job.sync.strategy)) names.emplace_back("gradient");
  return names;
}

Result<std::unique_ptr<Strategy>> make_strategy(const config::Job& job,
                                                const StrategyParts& parts) {
  if (sync::is_asynchronous(job.sync)) {
    return std::unique_ptr<Strategy>(new ServerRounds(job, parts));
  }
  if (sync::is_on_servers(job.sync.strategy)) {
    return std::unique_ptr<Strategy>(new ServerSteps(job, parts));
  }
  if (!sync::is_periodic(job.sync.strategy)) {
    return std::unique_ptr<Strategy>(new Lockstep(job, parts));
  }
  if (job.sync.strategy == "local-then-lockstep") {
    return std::unique_ptr<Strategy>(new LocalThenLockstep(job, parts));
  }
  return std::unique_ptr<Strategy>(new Periodic(job, parts));
}

}  // namespace muster::train
