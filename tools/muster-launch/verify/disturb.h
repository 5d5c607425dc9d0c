// One training with several workers that is disturbed on the way.
//
// It is a real `muster train --workers N`, which knows nothing of it: who is in, and as which
// process, its coordinator says; how far the job is, its metrics say.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "muster/base/clock.h"

#include "tools/muster-launch/verify/children.h"
#include "tools/muster-launch/verify/commits.h"
#include "tools/muster-launch/verify/timeline.h"

namespace muster::cli {

struct DisturbPlan {
  std::string muster;  // the programs
  std::string worker;
  std::vector<std::string> job;  // the words that say what is trained
  std::string run;               // its directory
  int workers = 4;
  double lease = 2;    // seconds
  int lanes = 8;       // never more workers than these
  uint64_t steps = 0;  // that the job has
  bool calm = false;   // each fault waits until everybody is in again and the job gets on
  std::vector<launch::Fault> faults;  // in the order of their steps
};

struct Disturbed {
  int exit_code = 0;  // of `muster train`
  std::vector<Happened> happened;
  CommitTimes commits;
  size_t left = 0;    // faults that the job ended before
  size_t missed = 0;  // kill@POINT: the job ended before the worker came there
};

// Whatever happens is told at once, a line for each fault, for the end of its pause, and for each
// who is in again. An error if it could not be started, or we were told to stop.
Result<Disturbed> disturb(const DisturbPlan& plan, Children& children, const Clock& clock,
                          const std::function<void(const std::string&)>& tell);

}  // namespace muster::cli
