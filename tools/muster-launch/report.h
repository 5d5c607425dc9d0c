// How a job of several workers ended, in words and as an exit code.
#pragma once

#include <string>

#include "muster/launch/supervisor.h"
#include "muster/track/run_directory.h"

#include "tools/muster/commands.h"

namespace muster::cli {

struct ReportedError {
  ErrorKind kind = ErrorKind::kInternal;
  std::string sentence;
  int exit_code = 0;
};
// Prints the last words of a worker or server that failed, and one sentence; `advice` ends it.
ReportedError tell_failure(const launch::WorkerFailure& failure, const std::string& advice,
                           bool json, Context& context);

// Whoever starts workers says that the job runs; workers do not (train/recorder.h).
Status say_running(const track::RunDirectory& run, const Clock& clock);

// Prints what there is to say, brings the run's status up to date if no worker did, and returns the
// exit code: 0 if the job is finished, unless the program of an own loop says afterwards that
// something is wrong; 128 + signal if it was stopped; else that of the worker that failed first.
// `again`: the command line that goes on with the run.
int report_end(const launch::JobEnd& end, const track::RunDirectory& run, const std::string& again,
               bool json, Context& context);

}  // namespace muster::cli
