// The sample ledger: which samples the committed steps of a job must have used.
//
// Each step's commit carries, lane by lane, a hash of the numbers of the samples that the lane was
// really given; Counters::ledger is the chain of them. Here the same chain is made from the job
// alone: from the order, which is a permutation in each pass, and the plan, which gives each
// position of the stream to one step and one lane. Equal chains mean that every pass used every
// sample exactly once, whatever happened to the workers meanwhile.
#pragma once

#include <cstdint>

#include "muster/data/plan.h"
#include "muster/data/sample_order.h"

namespace muster::train {

// After the first `steps` steps, for `samples` samples in the data set, in the order `full`.
uint64_t expected_ledger(const data::BatchPlan& plan, uint64_t seed, uint64_t samples,
                         uint64_t steps);
// The same in any order.
uint64_t expected_ledger(const data::BatchPlan& plan, const data::SampleOrder& order,
                         uint64_t steps);

}  // namespace muster::train
