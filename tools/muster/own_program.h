// A training program in Python (`--program train.py`, docs/python.md). It is run once up to its
// run.steps() to be asked for its job, and started as a worker by a script in the run directory
// (track/start_script.h).
#pragma once

#include <string>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/config/load.h"

namespace muster::cli {

struct OwnProgram {
  std::string path;                // as the user named it
  std::string job;                 // JSON, which is YAML
  std::vector<std::string> start;  // the words in front of a worker's
};

// Runs the program with MUSTER_PYTHON, else the python3 beside this program, else that on PATH.
// `errors` gets what it wrote to standard error if it failed. While the process has one thread.
Result<OwnProgram> ask_program(const std::string& path, FileSystem& files, std::string& errors);
// What a program answers, as JSON. Pure.
Result<OwnProgram> read_answer(const std::string& path, const std::string& answer);

// Where its job comes from: the program, the environment, -s.
Result<config::Sources> job_sources(const OwnProgram& program, const std::vector<std::string>& sets,
                                    FileSystem& files);

}  // namespace muster::cli
