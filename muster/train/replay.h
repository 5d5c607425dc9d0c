// Computes an asynchronous run (sync.strategy: server) again, from the record of its pushes, on one
// worker: with the same bits, whatever workers and servers there were and whatever happened to
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/train/session.h"

namespace muster::train {

struct Replay {
  int64_t step = 0;
  int64_t pushes = 0;
  uint64_t record_bytes = 0;
  double mean_staleness = 0;  // updates
  int64_t most_staleness = 0;
  // Of weights and rows: as they were saved, as they were computed again, and as the run told, if
  // this was its end.
  std::string saved;
  std::string replayed;
  std::string told;
  bool equal() const { return saved == replayed && (told.empty() || told == replayed); }
};

// Of an asynchronous job, from its beginning to this step, of which these are the rows
// (StepRows::save). `progress`: how many pushes are done, of how many.
Result<Replay> replay(config::Job job, Registries registries, FileSystem& files,
                      std::span<const std::string> shards, int64_t step,
                      const std::function<void(int64_t, int64_t)>& progress);

}  // namespace muster::train
