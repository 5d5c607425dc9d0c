// The history of a run's workers as a picture and as a table.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "muster/track/run_events.h"

#include "tools/muster/report/history.h"

namespace muster::cli::report {

// A row for each worker over time; of many workers, those with faults first of all. Pauses between
// attempts are shortened. What is too short or too close together to be told apart is drawn as
// one, so that the size of the picture does not depend on how long or how eventful the run was.
std::string timeline(const History& history);

// What the crosses mean, for those who cannot point at them: on paper, on a telephone. The last
// ones if there are many.
std::string fault_list(const History& history);

// A table of the events, the last ones if there are many.
std::string event_table(const std::vector<track::RunEvent>& events);

}  // namespace muster::cli::report
