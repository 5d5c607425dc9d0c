// The records of a run's metrics one after the other.
//
// For what need not hold all of them, each of which takes a kilobyte: runs have millions.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include "muster/base/file_system.h"
#include "muster/base/result.h"

namespace muster::track {

struct MetricsVisitor {
  // As Metrics::records has them (metrics.h).
  std::function<void(nlohmann::json record)> take;
  // A rollback: records taken before are void if their step is at least `step` and their
  // rollback_of is lower than `rollback`.
  std::function<void(int64_t step, uint64_t rollback)> drop;
};

// Returns how many lines are no records. None are visited if there is no such file. `most`: only
// the whole lines within its last so many bytes.
Result<int64_t> visit_metrics(FileSystem& fs, const std::string& path,
                              const MetricsVisitor& visitor,
                              size_t most = std::numeric_limits<size_t>::max());

}  // namespace muster::track
