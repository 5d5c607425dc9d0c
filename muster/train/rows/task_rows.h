// Rows and weights of asynchronous training (sync.strategy: server): all of the model is in tables.
//
// A worker takes a task, reads what it needs, computes, and pushes; the order of pushes decides
// (ps/task_order.h). One thread uses it, but for reads between rounds.
//
//   open, enter     the group begins a round, or goes on with it
//   next            done with a task, if there was one; the next one
//   cut             the round is to end early
//   fetch           the model's own parameters
//   read, add       rows, by the nets
//   push            the gradient of the model's own parameters
//   close           the round is over: results, and the parameters as all see them
//
// The table of the model's own parameters has vectors of their size, one after the other. The first
// is the parameters: what is evaluated, saved as the model and exported. There are others with
// sync.mode: easgd, where the first is the center: replica r has weights, which begin as the center
// does, and a velocity, which begins with zeros (train/step/easgd_task.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "muster/config/job.h"
#include "muster/train/rows/rows_base.h"
#include "muster/train/rows/weight_rows.h"

namespace muster::train {

// How much a push that is so many updates late counts: 1, or with sync.late: scale the inverse of
// that.
float weight_of(const config::SyncOptions& sync, int64_t staleness);
// A push with this place, as the shards are told.
ps::PlacedPushes::Placed placed_of(const config::SyncOptions& sync, const ps::Ordered& ordered);

class TaskRows final : public RowsBase {
 public:
  TaskRows(const config::Job& job, std::unique_ptr<Tables> tables);

  // The model's own parameters as they are when a job begins.
  void set_initial(std::function<std::span<const float>()> weights) {
    initial_ = std::move(weights);
  }

  // By one of the group, when all are ready for it: tasks up to `end`. A token for the others.
  Result<uint64_t> open(int64_t first, int64_t end);
  // By all. `worker`: the rank in the group.
  void enter(uint64_t token, int worker);
  // What was under way is void.
  void leave();
  struct Task {
    uint64_t ticket = 0;
    int64_t number = 0;
  };
  // `done`: what the task under way came to. Nothing: there is none for now.
  Result<std::optional<Task>> next(const ps::TaskResult* done);
  // As of the last next(): every task of the round has its place.
  bool round_is_over() const { return view_.over(); }
  // Past the last task of the round, as of then; after close(), as it was.
  int64_t round_end() const { return view_.end; }
  // By any of the group: the round ends at the next step boundary past what was given out.
  Status cut();

  // By whoever has a task of its own choice: a replay.
  void begin_task(const Task& task);

  Status fetch(std::span<float> weights);
  // `read`: the weights that it was computed from.
  Status push(std::span<const float> gradient, std::span<const float> read, double lr);

  static constexpr uint64_t kParameters = WeightRows::kParameters;  // the number of that vector
  uint64_t replica_weights(int replica) const { return 1 + static_cast<uint64_t>(replica); }
  uint64_t replica_velocity(int replica) const {
    return 1 + static_cast<uint64_t>(lanes_) + static_cast<uint64_t>(replica);
  }
  // Of some vectors, one after the other: their values as they are now, and gradients.
  Status fetch_vectors(std::span<const uint64_t> vectors, std::span<float> values);
  Status push_vectors(std::span<const uint64_t> vectors, std::span<const float> gradients,
                      std::span<const float> read, double lr);
  // The parameters as they are.
  Status read_weights(std::span<float> weights);
  // Results by task, and the parameters after the round.
  Result<std::vector<ps::TaskResult>> close(std::span<float> weights);

  Status commit(int64_t /*step*/) override { return {}; }
  Result<bool> is_at(int64_t step) override;
  Result<std::vector<std::string>> save(int64_t step) override;
  Status load(std::vector<std::string> shards, uint64_t era) override;

 private:
  int64_t clock_of(int64_t step) const override { return tasks_of(step) / pushes_; }
  // How many there are in this many steps.
  int64_t tasks_of(int64_t steps) const;
  Status read_rows(int64_t step, int lane, std::span<const uint64_t> keys, float* rows) override;
  ps::PushHeader header_of(int64_t step, int lane) const override;
  std::span<const float> with_reads(std::span<const uint64_t> keys,
                                    std::span<const float> gradients) override;
  Status look(bool results);
  Status tell_places();
  void keep_read(std::span<const uint64_t> keys, const float* rows);

  const config::SyncOptions sync_;
  const int64_t lanes_;
  const int64_t pushes_;  // that make one update
  const bool compensates_;
  const WeightRows weights_;
  std::function<std::span<const float>()> initial_;

  uint64_t token_ = 0;
  uint64_t worker_ = 0;
  ps::OrderView view_;
  int64_t told_ = 0;                   // places that this worker has told all shards
  std::optional<int64_t> refused_at_;  // how many were finished when there was no task

  Task task_;
  std::vector<std::vector<int64_t>> versions_;  // that it has read
  // The weights that were fetched last, which are where the caller wanted them: for how many tasks
  // they were used, and the shards' clocks.
  int64_t uses_ = 0;
  std::vector<int64_t> clocks_;
  // If it compensates: rows that the task has read, as they were first, by key.
  std::unordered_map<uint64_t, std::vector<float>> read_;
  std::vector<float> with_reads_;  // of one call
};

}  // namespace muster::train
