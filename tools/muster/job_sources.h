// Where this program takes a job from: a file, -s and the environment, without its own variables.
#pragma once

#include <string>
#include <vector>

#include "muster/config/load.h"

namespace muster::cli {

inline Result<config::Sources> job_sources(const std::string& path,
                                           const std::vector<std::string>& sets,
                                           FileSystem& files) {
  MUSTER_TRY(auto sources, config::gather_sources(files, path, sets));
  for (const char* name : {"MUSTER_WORKER", "MUSTER_BIN_DIR", "MUSTER_LAUNCHER_PID",
                           "MUSTER_FAULTS", "MUSTER_PYTHON"}) {
    sources.other_variables.emplace_back(name);
  }
  return sources;
}

}  // namespace muster::cli
