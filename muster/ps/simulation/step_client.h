// Workers that train step by step, as train/step/lockstep.cc and train/rows/sync_rows.cc do.
//
// Each lane of a step reads rows as they are after the steps before, or some steps ago, and adds
// its gradients, by whoever of the group has the lane. When all is answered the workers commit the
// step; when all of them know that, one or two tell the servers. A new group goes on from the last
// step that one of its members knows, and computes the step that was under way again, with other
// lanes for each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muster/ps/simulation/training.h"
#include "muster/ps/simulation/worker.h"

namespace muster::ps::simulation {

class StepTraining final : public Training {
 public:
  explicit StepTraining(Cluster& cluster);

  uint64_t lanes() const { return lanes_; }
  // As of how many steps ago rows are read, at most.
  int64_t staleness() const { return staleness_; }
  void note_lane(uint64_t step, uint64_t lane);

  std::unique_ptr<Worker> make_worker(ClientProcess& client) override;
  std::string check(std::span<TableData* const> shards, uint64_t position,
                    const std::vector<uint64_t>& eras) override;
  std::string check_end(std::span<TableData* const> shards) override;

 private:
  const uint64_t lanes_;
  const int64_t staleness_;
  std::set<std::pair<uint64_t, uint64_t>> pushed_;  // steps and lanes
};

class StepClient final : public Worker {
 public:
  StepClient(Cluster& cluster, StepTraining& training, ClientProcess& client)
      : Worker(cluster, training.groups(), client), training_(training) {}

 private:
  void begin() override { publish(/*last=*/false); }
  void publish(bool last);
  void commit(int64_t step);
  void run_lane(uint64_t lane);
  void add(uint64_t lane, const std::vector<uint64_t>& keys, const RowsRead& rows);
  void agree();

  // The one under way, and what it reads.
  int64_t step() const { return static_cast<int64_t>(position_); }
  int64_t version() const { return std::max<int64_t>(step() - training_.staleness(), 0); }

  StepTraining& training_;
};

}  // namespace muster::ps::simulation
