// Which lanes each worker computes.
//
// A step takes as long as its slowest worker. A worker with s lane threads that needs t seconds for
// a lane finishes n lanes in ceil(n / s) * t. Handing out lanes one by one, each to whoever would
// finish it first, gives the shortest step there is for such costs (any that never fall with n); it
// is what largest remainders aim at, without their flaw of giving a lane to a slow worker for its
// fraction.
//
// Lanes move as little as possible: a worker keeps what it has up to its new count, and when nobody
// comes or goes nothing moves unless the step gets faster by a given part (hysteresis). Bits do not
// depend on any of this.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace muster::roster {

struct LaneWorker {
  std::vector<int32_t> lanes;  // that it has now
  double lane_seconds =
      0;  // for one lane on one thread; 0: unknown, taken as the median of the others
  int32_t lane_threads = 1;
};

struct LaneOptions {
  int32_t lanes = 0;   // 0 to lanes - 1 are to be handed out
  double gain = 0.05;  // what a move of a lane that has a worker must be worth
};

struct LanePlan {
  std::vector<std::vector<int32_t>> lanes;  // by worker, ascending
  int32_t moves = 0;                        // lanes that had a worker and get another
  int32_t orphans = 0;                      // lanes that had none
  double step_seconds = 0;    // predicted for the slowest worker; 0 if no speed is known
  double before_seconds = 0;  // the same, had nothing moved but the orphans
};

// Every lane goes to exactly one worker; there must be a worker if there are lanes. A worker gets
// no lane where that makes the step longer than leaving it out. Deterministic: ties go to the
// worker with fewer lanes for its threads, then to the earlier one.
LanePlan plan_lanes(std::span<const LaneWorker> workers, const LaneOptions& options);

// Seconds until a worker with `lane_threads` has done `lanes`.
double lanes_seconds(size_t lanes, int32_t lane_threads, double lane_seconds);

// The running estimate of a speed: follows a lasting change within a few steps, and a single slow
// step moves it little.
double smooth(double estimate, double measured);

}  // namespace muster::roster
