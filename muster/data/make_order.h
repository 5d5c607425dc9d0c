// The order that a job's training samples have: `data.order` and what it needs.
#pragma once

#include <cstdint>
#include <memory>

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/data/dataset.h"
#include "muster/data/plan.h"
#include "muster/data/sample_order.h"

namespace muster::data {

// Follows from its arguments alone, so all workers have the same. Error (kJob): strata, and the
// data is not read by blocks.
Result<std::shared_ptr<const SampleOrder>> make_order(const config::DataOptions& options,
                                                      const Dataset& dataset, uint64_t seed,
                                                      const BatchPlan& batches);

}  // namespace muster::data
