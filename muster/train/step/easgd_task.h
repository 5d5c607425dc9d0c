// Tasks of elastic averaging through parameter servers (sync.mode: easgd).
//
// Each lane is a replica with weights x of its own; c is the center, which is the model. A task is
// sync.fetch steps of one lane. It reads x and c, moves both towards each other, and trains x:
//
//   d = a (x - c);  c = c + d                   a = sync.outer.lr / lanes; 0.9 / lanes
//   x = x - d - lr g(x)                         the first step
//   x = x - lr g(x)                             each further one
//
// Zhang, Choromanska, LeCun: "Deep learning with elastic averaging SGD", NIPS 2015, arXiv
// 1412.6651, algorithm 1. As there, the first gradient is that of the weights before the move. With
// optimizer.momentum m, which has to be Nesterov's, it is algorithm 2, EAMSGD, in which a replica
// has a velocity v too, and a step is
//
//   v = m v - lr g(x + m v);  x = x + v         in the first one, x - d + v
//
// In the paper a replica is a worker. Here any worker computes any replica's next task, when the
// one before has its place in the order (OpenRound::chain), so that workers may come and go. c may
// have changed since it was read: d is added to what it is then. What x and v become is pushed as a
// difference, and read again by the next task: they are what their shards have.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "muster/train/step/task_runner.h"

namespace muster::train {

class EasgdTask final : public TaskRunner {
 public:
  EasgdTask(const config::Job& job, const StrategyParts& parts);

  Result<ps::TaskResult> run(const TaskRows::Task& task) override;

 private:
  // Of TaskRows: what a task of this replica reads and changes.
  std::vector<uint64_t> vectors_of(int replica) const;
  // Weights for compute().
  void look_ahead();
  // The replica's part of the elastic move, and what the center's shards have to subtract.
  void move();
  void train(double lr);
  // What the replica's shards have to subtract, from its values before.
  Status take_changes(int64_t step, int lane);

  const size_t size_;     // of one vector
  const float rate_;      // a
  const float momentum_;  // 0: there is no velocity
  std::vector<float> values_;
  std::vector<float> changes_;
  // Parts of values_. The last one is empty if there is no momentum.
  const std::span<float> center_;
  const std::span<float> replica_;
  const std::span<float> velocity_;
};

}  // namespace muster::train
