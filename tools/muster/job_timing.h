// How fast a job's steps are on this machine with other numbers of lanes and of threads per lane:
// doctor's answer about a job, and plan's. Both are part of the result, so that they have to be
// chosen before a job is trained, and no machine may choose them by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "muster/base/result.h"
#include "muster/config/job.h"

namespace muster::cli {

struct Arrangement {
  int64_t lanes = 1;
  int64_t threads_per_lane = 1;
  bool operator==(const Arrangement&) const = default;
};

struct Timing {
  Arrangement arrangement;
  double step_seconds = 0;  // median
};

// What is worth trying: as the job says; a lane for each core; one lane on all cores. The first is
// always the job's. Pure.
std::vector<Arrangement> arrangements(const config::Job& job, int cores);

// A sentence if another arrangement is clearly faster than the job's, which is the first. Pure.
std::optional<std::string> advise_lanes(const std::vector<Timing>& timings);

// The median step in the lines of a metrics file, without the first ones; none if there are too
// few.
std::optional<double> median_step(const std::string& metrics);

// Trains for some seconds with each arrangement, in a folder that is gone afterwards. `begin` is
// called before each.
Result<std::vector<Timing>> time_steps(const config::Job& job, const std::string& worker, int cores,
                                       const std::function<void(const Arrangement&)>& begin);

// The job for a trial of at most so many steps and seconds, in which nothing else is done: no
// evaluation, no checkpoint on the way, a line of metrics for each step. Pure.
config::Job short_run(config::Job job, int64_t steps, double seconds);
// The middle one of these, of which there is at least one.
double median(std::vector<double> values);

// The median step of this job, trained alone for some seconds.
Result<double> time_alone(const config::Job& job, const std::string& worker);

}  // namespace muster::cli
