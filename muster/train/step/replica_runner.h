// Computes the steps of one replica after the other, with an inner Lockstep that is alone.
//
// The nets' weights are those of the working arena (StrategyParts::work), which has one replica at
// a time. Whoever uses this puts weights and the optimizer's state there before a replica begins,
// and takes them from there when it is done.
//
// If the strategy sends gradients (sync::sends_gradients), a step changes no weights: its gradient
// is put into the last of the working arena's states.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "muster/comm/group.h"
#include "muster/train/step/lockstep.h"
#include "muster/train/step/strategy.h"

namespace muster::train {

class ReplicaRunner {
 public:
  ReplicaRunner(const config::Job& job, const StrategyParts& parts);

  // What is told of its progress.
  void set_vitals(const Vitals* vitals) { lockstep_.set_vitals(vitals); }

  // The working arena now has replica `number`, as of `step`. The optimizer's state has been zero
  // since `optimizer_begin`.
  void begin(int number, int64_t step, int64_t optimizer_begin);
  // Whose steps are under way, and can be continued; -1: nobody's.
  int under_way() const { return under_way_; }
  // What the working arena has is no longer wanted.
  void give_up() { under_way_ = -1; }

  struct Record {
    std::vector<LaneResult>
        results;         // by step since the beginning of the commit, and lane of the job
    double seconds = 0;  // of its steps
  };
  // Computes the replica under way up to `end`, or to the failure of `group`. Step s of the job has
  // the results from (s - first) * lanes on.
  Status run_to(int64_t end, int64_t first, const comm::Group& group, Duration timeout,
                Record& record);

 private:
  // The optimizer of the inner Lockstep.
  const optim::Optimizer* inner_optimizer() const {
    return tap_ != nullptr ? tap_.get() : parts_.optimizer;
  }
  Status run_step(const std::vector<int>& lanes, int64_t at, Record& record);

  const config::Job& job_;
  const config::Job inner_job_;  // lockstep, alone, without audits
  StrategyParts parts_;
  std::unique_ptr<optim::Optimizer> tap_;  // of gradients; may be null
  Auditor auditor_;
  Lockstep lockstep_;
  int under_way_ = -1;
  int64_t next_ = 0;  // step of the replica under way
};

}  // namespace muster::train
