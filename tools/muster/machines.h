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
  double rate = 0;     // of the network, in bits per second, as it was given or measured
  double compute = 0;  // seconds of a step of one of them, if it is alone
};

// "22.5 Mbit/s". Pure.
std::string rate_text(double bits);

// How some steps of a job are trained on other machines.
struct Trial {
  std::string hosts;   // a file: launch/hosts.h
  std::string worker;  // --worker, or empty
  std::string listen;  // --listen, or empty
  std::string place;   // where its run directory is made, and removed afterwards
};

// Trains some steps of the job on these machines and measures the links between them.
Result<Machines> measure_hosts(const config::Job& job, const Trial& trial, Context& context);
// What is read from that run's metrics. Pure.
Result<Machines> read_measurement(const std::string& metrics, int workers);

// `path`: of the job file, for errors. `worker`: the program.
Result<sync::ModelSize> size_of_model(const config::Job& job, const std::string& path,
                                      const std::string& worker, Context& context);

// For each setting that is worth comparing. Pure.
std::vector<Prediction> predict(const config::Job& job, const sync::ModelSize& model,
                                const Machines& machines);

// Puts another strategy in place of sync.strategy: auto, and says which and why.
Status choose_strategy(config::Job& job, const std::string& job_file, const Trial& trial,
                       Context& context);

}  // namespace muster::cli
