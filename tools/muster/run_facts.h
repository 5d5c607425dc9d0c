// What can be told about a run from its directory, however broken it is. Only reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/base/job_fingerprint.h"
#include "muster/ckpt/snapshot.h"
#include "muster/config/job.h"
#include "muster/track/run_directory.h"

#include "tools/muster/console.h"

namespace muster::cli {

struct RunFacts {
  std::string name;
  std::string path;
  track::RunStatus status;
  int64_t steps = 0;
  // "loss", "accuracy": of the result, else the last ones written down while training.
  std::vector<std::pair<std::string, double>> metrics;
  bool metrics_are_final = false;  // they come from the result
  std::string weights_hash;        // of the result, else of the newest checkpoint; empty: not known
  JobFingerprint fingerprint;      // from the same place
  // Of the result: damaged blocks of the training data, and samples used in place of theirs.
  uint64_t damaged_blocks = 0;
  uint64_t replaced_samples = 0;
};

// Whether there is something to go on from.
bool has_checkpoint(const track::RunDirectory& run, FileSystem& files);

RunFacts gather_facts(const track::RunDirectory& run, FileSystem& files);

// "accuracy 0.9912, loss 0.0287"
std::string metrics_text(const std::vector<std::pair<std::string, double>>& metrics);
// Digits that tell values apart, no more: "0.9912".
std::string metric_text(double value);

Paint paint_of(track::RunState state);

// Whether weights trained with another value of this option are the same bits.
bool is_bit_neutral(const std::string& key);

}  // namespace muster::cli
