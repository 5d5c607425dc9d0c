// Who trained when, with which lanes, and what went wrong: from the events of a run.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "muster/track/run_events.h"

namespace muster::cli::report {

// All times are seconds since 1970, except that they never go back: where the clock was set back,
// the rest of the attempt, or all that follow, are moved on.

// From one start to its end, or to where nothing is known any more.
struct Attempt {
  double begin = 0;
  double end = 0;
  double started = 0;   // what the clock said
  std::string command;  // train, resume, coordinator
  int64_t workers = 0;
  bool ended = false;  // its end was recorded; else whoever would have done so was killed
  nlohmann::json fields;
};

// The time during which a worker had the same lanes.
struct Stretch {
  double begin = 0;
  double end = 0;
  std::string lanes;
  size_t lane_count = 0;
  int64_t first_roster = 0;
  int64_t last_roster = 0;
  bool waiting = false;  // the roster was one that waits for more workers
};

struct Mark {
  double time = 0;
  bool planned = false;  // it left as it was asked to
  std::string text;
};

struct WorkerHistory {
  std::string id;
  std::string host;  // the last one
  std::vector<Stretch> stretches;
  std::vector<Mark> marks;
};

struct History {
  std::vector<Attempt> attempts;
  std::vector<WorkerHistory> workers;  // by id; numbers in it by value
  std::vector<Mark> launcher;          // why attempts of several workers ended before the job did
  std::vector<Mark> servers;           // what happened to parameter servers
  size_t faults = 0;                   // marks of workers and launcher that are not planned
  size_t rosters = 0;
};

// What is known from elsewhere.
struct Around {
  std::vector<double> times;  // of metrics, ascending
  std::string all_lanes;      // what a worker alone has
  bool running = false;       // the last attempt goes on
};

History history_of(const std::vector<track::RunEvent>& events, const Around& around);

// What an event of kind "end" says: "finished", "stopped by SIGINT", "killed by SIGKILL", "failed:
// ...".
std::string end_text(const track::RunEvent& event);

}  // namespace muster::cli::report
