// What `muster status` shows: the coordinator's view at one moment, as plain values.
#pragma once

#include <string>
#include <vector>

#include "muster/roster/types.h"

namespace muster::roster {

struct WorkerStatus {
  Member member;  // its lanes are those of the present roster; none if it is not in
  // "member", "leaving", "joining" (will be in at the next step boundary), "spare" (there are
  // enough) or "quarantined" (could not work with another one; waits).
  std::string standing;
  Heartbeat beat;
  double lane_seconds = 0;  // smoothed; 0: not measured
  Duration heard_ago{0};
  int64_t process = 0;
};

struct EventLine {
  Duration ago{0};
  RosterNumber roster = 0;
  std::string text;
};

struct StatusReport {
  Roster roster;
  std::vector<WorkerStatus> workers;  // members by rank, then the others by id
  std::vector<EventLine> events;      // oldest first
  std::string standing;               // why things are as they are, one sentence
  std::string job;
  int32_t lanes = 0;
  int32_t min_workers = 0;
  int32_t max_workers = 0;  // as it counts: never 0, at most as many as there are lanes
  uint64_t step = 0;        // the newest that any worker was heard to have committed
  std::string ended;        // how the job ended, one sentence; empty: it has not
  bool finished = false;    // it has, with all its steps done
  Duration up{0};           // of this coordinator
  std::string servers;      // where parameter servers are registered; empty: there are none
};

class Registrar;
StatusReport status_of(Moment now, const Registrar& registrar);

}  // namespace muster::roster
