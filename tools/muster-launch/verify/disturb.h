// One training with several workers into which faults are injected.
//
// Which workers are members, and as which processes, its coordinator says; how far the job is, its
// metrics say.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/file_system.h"

#include "tools/muster-launch/verify/children.h"
#include "tools/muster-launch/verify/commits.h"
#include "tools/muster-launch/verify/plan.h"
#include "tools/muster-launch/verify/timeline.h"

namespace muster::cli {

struct Disturbed {
  int exit_code = 0;  // of the training
  std::vector<InjectedFault> happened;
  CommitTimes commits;
  size_t left = 0;    // faults that the job ended before
  size_t missed = 0;  // kill@POINT: the job ended before the worker came there
};

// Whatever happens is told at once, a line for each fault, for the end of its pause, and for each
// which workers have rejoined. An error if it could not be started, or we were told to stop.
Result<Disturbed> disturb(const DisturbPlan& plan, Children& children, FileSystem& files,
                          const Clock& clock, const std::function<void(const std::string&)>& tell);

}  // namespace muster::cli
