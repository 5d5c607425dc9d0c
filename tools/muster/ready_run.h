// What train and resume do before anybody trains: make or choose the run directory, check the job,
// find the worker. The same for one worker and for several.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "muster/config/job.h"
#include "muster/track/run_directory.h"

#include "tools/muster/commands.h"
#include "tools/muster/own_program.h"

namespace muster::cli {

// A run that can be trained in.
struct ReadyRun {
  track::RunDirectory run;
  config::Job job;
  std::string worker;              // the program
  std::vector<std::string> words;  // for it: train --run ...
  bool hints = false;              // whether its user wants to read what can be done next
};

// ask_program(), and its errors are shown.
Result<OwnProgram> asked_program(const std::string& path, Context& context);
// The worker to continue a run with: `given` (--worker) if it is not empty, the program that the
// run was started with (--program), or what find_worker() finds.
Result<std::string> worker_of_run(const track::RunDirectory& run, const std::string& given);

// A new directory with the job in it, where the arguments say.
Result<track::RunDirectory> make_directory(const config::Job& job, const std::string& run_directory,
                                           Context& context);

Result<ReadyRun> make_run(const TrainArguments& arguments, Context& context);
// Nothing if the run is finished, which then has been told.
Result<std::optional<ReadyRun>> choose_run(const ResumeArguments& arguments, Context& context);

// After a training that finished, for a person at a terminal: what can be done with the run.
void hint_next(const ReadyRun& ready, Console& console);

// How to name the run on the next command line, from here: "muster resume NAME".
std::string resume_command(const track::RunDirectory& run);

}  // namespace muster::cli
