// Workers that train asynchronously, as train/step/server_rounds.cc and train/rows/task_rows.cc do;
// functions have the names that they have there.
//
// The group begins a round: one opens it, and all get its token. Each takes one task after the
// other, reads, stages its gradients, says that it is done, and tells the shards of all places that
// it knows of. When all tasks of the round have a place, the group commits it. Now and then one of
// them has the round cut short.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "muster/ps/simulation/task_training.h"
#include "muster/ps/simulation/worker.h"
#include "muster/ps/task_order.h"

namespace muster::ps::simulation {

class TaskClient final : public Worker {
 public:
  TaskClient(Cluster& cluster, TaskTraining& training, ClientProcess& client)
      : Worker(cluster, training.groups(), client), training_(training) {}

 private:
  // A round.
  void begin() override { begin_round(); }
  void check_position(uint64_t position, const Then& then) override;
  void begin_round();
  void open();
  void check_opened(uint64_t token, uint64_t openings, const OrderView& after);
  void overtaken();
  void enter_round(uint64_t token);
  void close();
  void commit(const RowsRead& weights);

  // Tasks.
  void look(bool results, Then then);
  void tell_places();
  void next();
  void finish_and_take();
  void begin_task();
  void idle();
  void fetch();
  void read_rows();
  void compute(const std::vector<uint64_t>& keys, const RowsRead& rows);

  // All of them are committed.
  int64_t tasks_done() const { return static_cast<int64_t>(position_); }
  int64_t updates_told() const { return told_ / training_.pushes(); }

  TaskTraining& training_;
  uint64_t token_ = 0;
  OrderView view_;
  int64_t told_ = 0;                   // places that this worker has told all shards
  std::optional<int64_t> refused_at_;  // how many were finished when there was no task

  uint64_t ticket_ = 0;  // of the task under way; 0: there is none
  int64_t task_ = 0;
  TaskResult result_;
  std::vector<std::vector<int64_t>> versions_;
  // The weights that were fetched last, and for how many tasks.
  int64_t uses_ = 0;
  RowsRead weights_;
};

}  // namespace muster::ps::simulation
