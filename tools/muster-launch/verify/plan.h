// What a verification does: the job, the faults, and what the faults need.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "muster/lab/hosts_file.h"
#include "muster/launch/fault_plan.h"

#include "tools/muster/commands.h"

namespace muster::cli {

class Network;

struct DisturbPlan {
  std::string muster;  // the programs
  std::string worker;
  std::vector<std::string> job;    // the words that say what is trained
  std::string run;                 // its directory
  std::string host = "127.0.0.1";  // where the coordinator listens, and workers are reached
  int workers = 4;
  int sites = 0;        // 0: none
  int64_t servers = 0;  // of parameters

  double lease = 2;         // seconds
  double hang_timeout = 0;  // seconds
  int lanes = 8;            // never more workers than these
  uint64_t steps = 0;       // that the job has
  bool calm = false;  // each fault waits until all workers have rejoined and the job makes progress
  std::vector<launch::Fault> faults;    // in the order of their steps
  std::vector<lab::HostOptions> hosts;  // of the laboratory in which it is trained; empty: none
  Network* network = nullptr;           // for the fault cut; not owned
};

// What was added to the options of a job, beside those that every verification needs.
struct Added {
  std::vector<std::string> set;        // as for -s
  std::vector<std::string> sentences;  // why
};

// Faults of some kinds would take minutes each with the defaults of these options. `given`: whether
// the user has set one. Pure.
Added options_for(const std::vector<launch::Fault>& faults,
                  const std::function<bool(const std::string& key)>& given);

// Both runs get these: every step has its line, and no slot is ever given up.
std::vector<std::string> settings(const VerifyArguments& arguments, const Added& added);

struct VerifyPlan {
  DisturbPlan disturb;
  bool asynchronous = false;  // the disturbed run is compared with its replay
  Added added;
};
Result<VerifyPlan> make_plan(const VerifyArguments& arguments, Context& context);

}  // namespace muster::cli
