// How the workers train together: what happens between the lanes' gradients and the update of the
// weights, in which steps, and what all workers agree on. `sync.strategy` in the job chooses one;
// docs/extend.md says how to add one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "muster/base/clock.h"
#include "muster/comm/group.h"
#include "muster/config/job.h"
#include "muster/optim/optimizer.h"
#include "muster/train/audit/auditor.h"
#include "muster/train/membership/vitals.h"
#include "muster/train/rows/step_rows.h"
#include "muster/train/state/arena.h"
#include "muster/train/state/state.h"
#include "muster/train/step/commit.h"
#include "muster/train/step/gradient_sum.h"
#include "muster/train/step/lane_runner.h"
#include "muster/train/step/team.h"

namespace muster::train {

class SyncWeights;
class TaskRows;

struct StepReport {
  int64_t steps = 1;  // that were committed together
  double loss = 0;    // mean over their samples
  uint64_t samples = 0;
  double lr = 0;
  double gradient_norm = -1;  // before clipping; -1: not computed
  bool redone = false;
  bool skipped = false;
  // The fewest bits that the largest gradient of any block had above the rounding unit of its sum
  // (exact::bits_above_unit); -1: no gradient was summed in fixed point.
  int64_t gradient_bits = -1;
};

// What a strategy works with. Each part must outlive it, and belongs to it while a step runs.
struct StrategyParts {
  Arena* arena = nullptr;  // the state of the job
  GradientSum* sum = nullptr;
  Team* team = nullptr;
  LaneRunner* lanes = nullptr;
  const optim::Optimizer* optimizer = nullptr;
  Auditor* auditor = nullptr;
  Memory* memory = &host_memory();  // for what the strategy needs besides
  StepRows* rows = nullptr;         // if the job has tables
  TaskRows* tasks = nullptr;        // the same, of asynchronous training
  SyncWeights* weights = nullptr;   // the same, of steps with all of the model on servers
  Arena* work = nullptr;            // what the nets compute with, if that is not `arena`
  // With `weights`: where the lanes' gradients go, by member of the team. `sum` is the first.
  std::vector<GradientSum*> lane_sums;
};

// One thread calls it.
class Strategy : public State {
 public:
  // Which units of work (sync::units_of) this worker computes from now on, and with whom. Not while
  // a step is under way; `group` must live until the next call. At first: all, alone.
  virtual void assign(std::vector<int> units, comm::Group* group, Duration timeout) = 0;
  // After assign(): this worker is one of a site, whose members compute these units together. Its
  // rank 0 has them as its own, the others none. `site` must live as long as the group. Only where
  // the units are replicas.
  virtual void join_site(comm::Group& site, std::vector<int> units);
  // The lanes that this worker computes.
  virtual std::vector<int> lanes() const = 0;
  // Whom to tell about progress. It must outlive the strategy.
  virtual void set_vitals(const Vitals* vitals) = 0;

  // Computes and commits the next step, or as many as are committed together. `flags`: asked when a
  // commit begins, and maybe before; what it returns then is combined over the workers into
  // agreed_flags(). An error, with nothing changed, if an audit finds a difference
  // (Auditor::has_finding).
  virtual Result<StepReport> run(const std::function<CommitFlags()>& flags) = 0;
  // Makes rows of tables, if there are any, those of the present step. Collective; run() does so
  // itself.
  virtual Status publish_rows() { return {}; }
  // Whether the state is all there: false while its weights are still to come (publish_rows).
  virtual bool is_complete() const { return true; }
  // Of the commit that led to the present position.
  virtual CommitFlags agreed_flags() const = 0;
  // The hash of a lane's gradient in the next step, whoever's lane it is, for audits. The sums are
  // lost.
  virtual Result<uint64_t> recompute(int lane) = 0;
  // Makes the nets' weights those of the state, for evaluations. Not while a step is under way.
  virtual void show_weights() = 0;
  // How many units this worker computes at the same time.
  virtual int units_at_once() const = 0;
  // Time for one of them in the last step, on average. The update, which every worker
  // does whatever its lanes, is shared out among them: a slow worker with few lanes is slower for
  // each of them than its lanes alone would say.
  virtual double lane_seconds() const = 0;
};

// The optimizer's buffers in the state of a job: those of `inner`, the optimizer that the job
// names, or of an outer one.
std::vector<std::string> state_names(const config::Job& job, const optim::Optimizer& inner);

// Those of the working arena, if the strategy has one (StrategyParts::work).
std::vector<std::string> work_state_names(const config::Job& job, const optim::Optimizer& inner);

// The one that `job.sync.strategy` names.
Result<std::unique_ptr<Strategy>> make_strategy(const config::Job& job, const StrategyParts& parts);

}  // namespace muster::train
