// An asynchronous training with an order of tasks (ps/task_order.h): its rules, what a task
// computes, and whether servers have what the record of pushes gives.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "muster/ps/push_record.h"
#include "muster/ps/simulation/reference.h"
#include "muster/ps/simulation/training.h"

namespace muster::ps::simulation {

// Of one task, and a hash of all.
struct TaskGradient {
  std::vector<float> rows;
  std::vector<float> weights;
  uint64_t hash = 0;
};
// From what the task has read.
TaskGradient gradient_of(uint64_t era, int64_t task, const std::vector<float>& rows,
                         const std::vector<float>& weights);

std::vector<uint64_t> row_keys(int64_t task);
const std::vector<uint64_t>& weight_keys();

class TaskTraining final : public Training {
 public:
  static constexpr int64_t kStep = 6;  // tasks

  explicit TaskTraining(Cluster& cluster);

  int64_t tasks() const { return tasks_; }          // of a round
  int64_t pushes() const { return pushes_; }        // that make one update
  int64_t staleness() const { return staleness_; }  // OpenRound::staleness
  int64_t chain() const { return chain_; }          // OpenRound::chain
  int64_t fetch() const { return fetch_; }          // tasks that use the same weights
  // Of a push that is so many updates late.
  float weight_of(int64_t staleness) const;
  // Of each push; 0: there is none (PlacedPushes).
  float compensation() const { return compensates_ ? 0.25F : 0; }
  // A push of a task, and what it has for each row.
  PushHeader stage_header(uint64_t era, uint32_t table, uint64_t ticket) const;
  std::vector<float> with_reads(uint32_t table, const std::vector<float>& gradients,
                                const std::vector<float>& read) const;

  std::unique_ptr<Worker> make_worker(ClientProcess& client) override;
  std::string check(std::span<TableData* const> shards, uint64_t position,
                    const std::vector<uint64_t>& eras) override;
  std::string check_end(std::span<TableData* const> shards) override;

 private:
  std::string check_places(const std::vector<ps::PushRecord>& records) const;
  std::string check_chains(const std::vector<ps::PushRecord>& records) const;

  const int64_t tasks_;
  const int64_t pushes_;
  const int64_t staleness_;
  const int64_t fetch_;
  const bool scaled_;  // late pushes count less
  const bool compensates_;
  const int64_t chain_;
};

}  // namespace muster::ps::simulation
