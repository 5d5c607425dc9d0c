// What the workers of a schedule train together, and the numbers with which they do.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "muster/ps/simulation/groups.h"
#include "muster/ps/simulation/recorded_data.h"
#include "muster/ps/simulation/simulation.h"
#include "muster/ps/simulation/worker.h"

namespace muster::ps::simulation {

inline constexpr uint32_t kRowTable = 0;
inline constexpr uint32_t kWeightTable = 1;  // the parameters that each task of a training needs
inline constexpr uint64_t kKeys = 40;        // of rows: 0, 1, ...
inline constexpr double kRate = 0.1;
inline constexpr uint32_t kMostStaleness = 2;  // of rows, in steps

class Training {
 public:
  explicit Training(Cluster& cluster) : cluster_(cluster), groups_(cluster) {}
  virtual ~Training() = default;

  Groups& groups() { return groups_; }
  virtual std::unique_ptr<Worker> make_worker(ClientProcess& client) = 0;
  // What is wrong with these rows, a copy of each shard, as those of a position (Worker::position);
  // empty: nothing. `eras`: in which each step or task before it was computed.
  virtual std::string check(std::span<TableData* const> shards, uint64_t position,
                            const std::vector<uint64_t>& eras) = 0;
  // At the end.
  virtual std::string check_end(std::span<TableData* const> shards);

 protected:
  Cluster& cluster() { return cluster_; }
  const Cluster& cluster() const { return cluster_; }

 private:
  Cluster& cluster_;
  Groups groups_;
};

// Null: Clients::kUpdates.
std::unique_ptr<Training> make_training(Clients clients, Cluster& cluster);

// The rows that a lane of a step, or a task, uses.
std::vector<uint64_t> some_keys(uint64_t step, uint64_t lane);
// 0, 1, ...
std::vector<uint64_t> first_keys(uint64_t count);
// A part of its gradient that does not depend on what it has read; from -1 to 1. In each era it is
// another one, as if workers of the eras before had computed wrongly: what is left of them shows.
float noise(uint64_t era, uint64_t step, uint64_t lane, uint64_t i);

}  // namespace muster::ps::simulation
