#include "muster/train/step/strategy.h"

#include "muster/train/step/lockstep.h"

namespace muster::train {

Result<std::unique_ptr<Strategy>> make_strategy(const config::Job& job,
                                                const StrategyParts& parts) {
  if (job.sync.strategy == "lockstep") return std::unique_ptr<Strategy>(new Lockstep(job, parts));
  return Error(ErrorKind::kJob, "sync.strategy: there is no strategy '{}'; there is lockstep",
               job.sync.strategy);
}

}  // namespace muster::train
