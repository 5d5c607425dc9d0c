// One step: lanes, commit, update.
//
//   lanes     the team takes lanes one by one, forward and backward, gradients into the GradientSum
//   commit    did a scale overflow (then the lanes run once more), is everything finite
//   norms     only if the job clips by norm or the optimizer needs them: sums of squares, in
//   double,
//             block by block, added up in the order of blocks
//   update    the team takes blocks one by one: sum -> float -> optimizer -> weights
//
// Between the phases the team is at a barrier (Team::run returns), which is what lets lanes read
// the weights and blocks change them without any lock. A step has no effect at all unless it is
// committed: everything up to the commit only reads the arena.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "muster/config/job.h"
#include "muster/data/loader.h"
#include "muster/optim/optimizer.h"
#include "muster/train/arena.h"
#include "muster/train/gradient_sum.h"
#include "muster/train/lane_net.h"
#include "muster/train/team.h"

namespace muster::train {

struct StepReport {
  double loss = 0;  // mean over the step's samples
  uint64_t samples = 0;
  double lr = 0;
  double gradient_norm = -1;  // before clipping; -1: not computed
  bool redone = false;
  bool skipped = false;
};

// Each part must outlive the Stepper and belongs to it while run() runs.
struct StepParts {
  Arena* arena;
  GradientSum* sum;
  Team* team;
  std::span<const std::unique_ptr<LaneNet>> nets;  // one per member of the team
  data::Loader* loader;
  const data::BatchPlan* batches;
  const data::Schema* schema;
  const optim::Optimizer* optimizer;
};

class Stepper {
 public:
  // total_steps: for schedules that end with the job; 0: unknown.
  Stepper(const config::Job& job, StepParts parts, int64_t total_steps);

  // Computes and commits the arena's next step.
  Result<StepReport> run();

 private:
  struct LaneResult {
    double loss = 0;
    uint64_t samples = 0;
  };

  Result<GradientSum::Outcome> run_lanes(GradientSum::Mode mode,
                                         std::span<const uint8_t> exponents);
  Status run_lane(int member, int lane);
  Error not_finite_error(const GradientSum::NotFinite& where);
  // Calls body for every block, spread over the team; scratch has room for one block.
  void for_each_block(const std::function<void(size_t block, std::span<float> scratch)>& body);
  double gradient_norm();
  void measure_norms(const optim::StepScalars& scalars);
  void update(const optim::StepScalars& scalars);
  const optim::TensorInfo& info_of(size_t block) const;
  optim::BlockView view_block(size_t block, std::span<float> scratch);

  const config::Job& job_;
  StepParts parts_;
  const int64_t total_steps_;
  const int lanes_;
  std::vector<LaneResult> lane_results_;     // by lane, written by whoever has the lane
  std::vector<uint8_t> exponents_;           // of the step being computed
  std::vector<double> squares_;              // by block
  std::vector<optim::Norms> block_norms_;    // by block
  std::vector<optim::Norms> tensor_norms_;   // by tensor
  std::vector<std::vector<float>> scratch_;  // by thread, one block each
};

}  // namespace muster::train
