// Which strategy to take on which network: the settings that `muster plan` compares, and its
// advice.
#pragma once

#include <string>
#include <vector>

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/sync/cost.h"

namespace muster::cli {

struct Setting {
  std::string sync;  // as in a job file: "{ strategy: ... }"; empty: the job's own
  config::Job job;
};

// What is worth comparing for this job on so many hosts, from the one that is nearest to plain
// lockstep on. The job's own setting is the first. Pure.
std::vector<Setting> settings_for(const config::Job& job, int hosts);

// The job as one of so many workers computes it, for a trial that measures its step. Pure.
config::Job share_of(config::Job job, int hosts);

struct Prediction {
  Setting setting;
  sync::Cost cost;
};

// Which one to take: the first that is nearly as fast as the fastest, the job's own aside. Pure.
size_t recommended(const std::vector<Prediction>& predictions);
// Why: a sentence. Pure.
std::string reason_for(const std::vector<Prediction>& predictions, size_t choice, double compute);

}  // namespace muster::cli
