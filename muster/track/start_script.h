// RUN/program: the script that starts the program of a run as its worker, if the run has a program
// of its own with a training loop (docs/python.md). `muster resume` starts what it names.
#pragma once

#include <string>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/base/result.h"

namespace muster::track {

// Its text. `start`: the words in front of a worker's. Pure.
std::string start_script(const std::vector<std::string>& start);
// Writes it into a run directory; returns its absolute path.
Result<std::string> write_start_script(FileSystem& files, const std::string& run_directory,
                                       const std::vector<std::string>& start);
// The absolute path of that of a run. Empty: it has none.
std::string find_start_script(const std::string& run_directory);

}  // namespace muster::track
