// What was done to a job, when, how long that stalled the others and when all had rejoined; as
// text and as JSON. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/launch/fault_plan.h"

#include "tools/muster-launch/verify/commits.h"

namespace muster::cli {

struct InjectedFault {
  std::string name;
  launch::FaultKind kind = launch::FaultKind::kKill;
  std::string whom;  // ids of workers, or "coordinator"
  double when = 0;   // seconds since 1970
  double after = 0;  // seconds since the job was started
  uint64_t step = 0;
  // -1: not known.
  double stalled = -1;    // seconds that the others lost by it
  double recovered = -1;  // seconds since 1970: the commit that ended that
  double rejoined = -1;   // the same: the last of those that rejoin by themselves had rejoined
  double until = -1;      // the same: of one that lasts, when its cause was taken away
};

// When its cause was over: at once, or, of one that lasts, once it was taken away; -1: not yet.
double over_at(const InjectedFault& what);

// Fills in how long each stalled the job, and until when: the longest pause between commits around
// it, less a usual step. Two pauses are looked at, because the commit under way may still succeed
// after the fault. If the coordinator was paused or started again, or a disk was slow, all pauses
// until two commits after its end are looked at.
//
// A worker that is suspended, hangs or cannot reach another one stalls the others until it is
// removed, much longer than any other fault. That pause belongs to the suspension, hang or cut
// alone: whatever else falls beside it has to do with what is left, and one that falls while all
// workers wait anyway costs nothing more. Of other faults that share a pause, each is said to have
// caused it.
//
// Returns the usual step in seconds, the median; 0 if there were too few.
double measure_pauses(const CommitTimes& commits, std::vector<InjectedFault>& happened);

struct Spread {
  size_t count = 0;
  double median = 0;
  double worst99 = 0;
  double worst = 0;
};
// Of the known stalls of one kind.
Spread spread_of(const std::vector<InjectedFault>& happened, launch::FaultKind kind);
// Of one kind: seconds from the fault until its worker was a member again, where that is known.
Spread rejoin_spread_of(const std::vector<InjectedFault>& happened, launch::FaultKind kind);

// Lines of the timeline, in columns: the fault, the end of its pause, and that one it hit (or
// added) had joined or rejoined at `when`.
std::string happened_text(const InjectedFault& what);
std::string recovered_text(const InjectedFault& what);
std::string rejoined_text(const InjectedFault& what, const std::string& whom, double when);
// A line for each kind that happened, under a heading.
std::vector<std::string> pauses_text(const std::vector<InjectedFault>& happened,
                                     double step_seconds);

// {"kill": {"count": 3, "median": 0.1, ...}, ...}: how long each kind held the others up, and how
// long it took until the workers that it hit were members again.
nlohmann::ordered_json pauses_json(const std::vector<InjectedFault>& happened);
nlohmann::ordered_json rejoins_json(const std::vector<InjectedFault>& happened);
nlohmann::ordered_json timeline_json(const std::vector<InjectedFault>& happened);

}  // namespace muster::cli
