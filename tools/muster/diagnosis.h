// What doctor concludes: a pure function of what it saw, so that every machine we have heard of can
// be a test.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/muster/machine.h"

namespace muster::cli {

// What `muster-worker probe` answers. Fields it did not give stay at their defaults.
struct Probe {
  std::string torch_version;
  std::string gloo;  // where Gloo's code comes from: the path of a library
  std::string capability;
  std::string fingerprint;
  std::map<std::string, std::string> kernels;  // name, hash
  double gflops_one_lane = 0;
  double gflops_all_lanes = 0;
  int lane_threads = 0;
  double first_step_ms = 0;
  std::string mkl_cbwr;
};

// From the worker's JSON; an error if that is not one object.
Result<Probe> parse_probe(std::string_view json);

struct Findings {
  Machine machine;
  Disk disk;
  std::optional<Probe> probe;
  std::string probe_problem;  // why there is none
};

struct Advice {
  bool fatal = false;  // training is not possible
  std::string text;    // what is wrong and what to do, one sentence
};

// Fatal ones first.
std::vector<Advice> advise(const Findings& findings);

// "This machine can train." and so on.
std::string verdict(const std::vector<Advice>& advice);

}  // namespace muster::cli
