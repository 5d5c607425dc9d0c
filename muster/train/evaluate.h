// The model's quality on a data set: loss and metrics over all samples, or the first `samples`.
//
// The team takes batches one by one; each batch's sums are kept apart and added up in the order of
// batches, so the result depends neither on the number of threads nor on that of workers, which
// share the batches.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "muster/comm/group.h"
#include "muster/data/dataset.h"
#include "muster/train/lane_net.h"
#include "muster/train/team.h"

namespace muster::train {

struct EvalReport {
  uint64_t samples = 0;
  std::vector<std::pair<std::string, double>> values;  // "loss" first, then the loss's metrics
  // The value of that name; it must be there.
  double at(const std::string& name) const;
};

// nets: one per member of the team. samples: 0 for all. group: all of its members call this
// together and get the same; nullptr: alone.
Result<EvalReport> evaluate(const data::Dataset& dataset, const NetPlan& plan, Team& team,
                            std::span<const std::unique_ptr<LaneNet>> nets, int64_t batch,
                            int64_t samples, comm::Group* group = nullptr,
                            const comm::OpOptions& options = {});

}  // namespace muster::train
