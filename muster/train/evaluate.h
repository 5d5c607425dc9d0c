// The model's quality on a data set: loss and metrics over all samples, or the first `samples`.
//
// The team takes batches one by one; each batch's sums are kept apart and added up in the order of
// batches, so the result depends neither on the number of threads nor on who computes which batch.
// Bins (model::Metric) are whole numbers, whose sum is the same in any order: they are added up at
// once.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "muster/comm/group.h"
#include "muster/data/dataset.h"
#include "muster/train/membership/vitals.h"
#include "muster/train/step/lane_net.h"
#include "muster/train/step/team.h"

namespace muster::train {

struct EvalReport {
  uint64_t samples = 0;
  std::vector<std::pair<std::string, double>> values;  // "loss" first, then the loss's metrics
  // The value of that name; it must be there.
  double at(const std::string& name) const;
};

// Who evaluates together: all members of the group call evaluate() and get the same. Each takes a
// part of the batches in proportion to its share, so that a slow machine does not keep the others
// waiting.
struct EvalGroup {
  comm::Group* group = nullptr;  // nullptr: alone
  std::span<const size_t> shares;
  comm::OpOptions options;
  const Vitals* vitals = nullptr;  // each batch is progress
  // While a thread waits for data that is streamed; empty: it waits as long as it takes.
  data::KeepWaiting keep_waiting = {};  // NOLINT(readability-redundant-member-init)
};

// The part of `count` things that belongs to `rank`; the parts of all ranks cover them once.
comm::Part part_by_share(size_t count, size_t rank, std::span<const size_t> shares);

// nets: one per member of the team. samples: 0 for all.
Result<EvalReport> evaluate(const data::Dataset& dataset, const NetPlan& plan, Team& team,
                            std::span<const std::unique_ptr<LaneNet>> nets, int64_t batch,
                            int64_t samples, const EvalGroup& with = {});

}  // namespace muster::train
