// What `muster plan` and sync.strategy: auto know of the machines of a job, and what follows.
#pragma once

#include <string>
#include <vector>

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/sync/cost.h"

#include "tools/muster/commands.h"
#include "tools/muster/plan.h"

namespace muster::cli {

struct Machines {
  int hosts = 1;  // with a worker each
  sync::Network network;
  double compute = 0;  // seconds of a step of one of them, if it is alone
};

// Trains some steps of the job on the machines of a hosts file (launch/hosts.h) and measures the
// links between them, in a run directory that is gone afterwards. `worker`: --worker, or empty.
Result<Machines> measure_hosts(const config::Job& job, const std::string& hosts_file,
                               const std::string& worker, Context& context);
// What is read from that run's metrics. Pure.
Result<Machines> read_measurement(const std::string& metrics, int workers);

// `path`: of the job file, for errors. `worker`: the program.
Result<sync::ModelSize> size_of_model(const config::Job& job, const std::string& path,
                                      const std::string& worker, Context& context);

// For each setting that is worth comparing. Pure.
std::vector<Prediction> predict(const config::Job& job, const sync::ModelSize& model,
                                const Machines& machines);

// Puts another strategy in place of sync.strategy: auto, and says which and why. `job_file` and
// `worker` as above.
Status choose_strategy(config::Job& job, const std::string& job_file,
                       const SeveralArguments& several, const std::string& worker,
                       Context& context);

}  // namespace muster::cli
