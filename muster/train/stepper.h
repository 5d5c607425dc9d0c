// One step: lanes, sum, commit, update.
//
//   compute   the team takes this worker's lanes one by one, forward and backward, gradients into
//             the GradientSum; its buckets are summed over the workers meanwhile
//             now and then also a lane of a peer, to compare the results (audit.h)
//   commit    one small allreduce (commit.h): did a scale overflow, is everything finite, losses
//   apply     the step is done: norms, if the job clips by norm or the optimizer needs them (sums
//             of squares, in double, block by block, added up in the order of blocks), then the
//             team takes blocks one by one: sum -> float -> optimizer -> weights. Or the scales
//             are mended and the step is computed again: the very first time of all, which only
//             looks at magnitudes, and after an overflow
//
// Everything that decides what is computed is in the arena: the step, the attempt and the
// exponents. compute() and commit() do not change it. apply() does, and depends on nothing but the
// arena, the full sums and the message: so a worker that missed the commit, but had all sums, can
// apply the message later and has the same bits.
//
// Between the phases the team is at a barrier (Team::run returns), which is what lets lanes read
// the weights and blocks change them without any lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "muster/comm/group.h"
#include "muster/config/job.h"
#include "muster/data/loader.h"
#include "muster/optim/optimizer.h"
#include "muster/roster/types.h"
#include "muster/train/arena.h"
#include "muster/train/auditor.h"
#include "muster/train/commit.h"
#include "muster/train/gradient_sum.h"
#include "muster/train/lane_net.h"
#include "muster/train/sum_exchange.h"
#include "muster/train/team.h"
#include "muster/train/vitals.h"

namespace muster::train {

struct StepReport {
  double loss = 0;  // mean over the step's samples
  uint64_t samples = 0;
  double lr = 0;
  double gradient_norm = -1;  // before clipping; -1: not computed
  bool redone = false;
  bool skipped = false;
  // The fewest bits that the largest gradient of any block had above the rounding unit of its sum
  // (exact::bits_above_unit); -1: no gradient was summed in fixed point.
  int64_t gradient_bits = -1;
};

// Each part must outlive the Stepper and belongs to it while run() runs.
struct StepParts {
  Arena* arena;
  GradientSum* sum;
  Team* team;
  std::span<const std::unique_ptr<LaneNet>> nets;  // one per member of the team
  data::Loader* loader;
  const data::BatchPlan* batches;  // may change between steps, as the state is replaced
  const data::Schema* schema;
  const optim::Optimizer* optimizer;
  Auditor* auditor;
};

class Stepper {
 public:
  Stepper(const config::Job& job, StepParts parts);

  // Which lanes this worker computes from now on, and with whom. Not while a step is under way;
  // `group` must live until the next call. At first: all lanes, alone.
  void assign(std::vector<int> lanes, comm::Group* group, Duration timeout);

  // Computes and commits the arena's next step. `flags`: asked when a commit begins; what it
  // returns is combined over the workers into message().flags(). An error, with nothing changed, if
  // an audit finds a difference (Auditor::has_finding).
  Result<StepReport> run(const std::function<CommitFlags()>& flags = {});

  // The parts of it. After a successful compute() the sums are full: holds_sums().
  Status compute();
  Status commit(const CommitFlags& flags);
  // The hash of a lane's gradient in the next step, whoever's lane it is. The sums are lost.
  Result<uint64_t> recompute(int lane);
  // Nothing if the step has to be computed again.
  Result<std::optional<StepReport>> apply(const CommitMessage& message);

  // The sums of the arena's next step are here, on every worker, and not applied.
  bool holds_sums() const { return holds_sums_; }
  // How far the arena is.
  roster::Position position() const;
  // Of the last commit that succeeded, or that was taken over from another worker. It stays until
  // the next one has succeeded: a worker that missed it may ask for it until then.
  CommitMessage& message() { return message_; }
  // The position that message() led away from, to the present one.
  std::optional<roster::Position> message_of() const { return message_of_; }
  // Time for one lane on one thread in the last step, on average. The update, which every worker
  // does whatever its lanes, is shared out among them: a slow worker with few lanes is slower for
  // each of them than its lanes alone would say.
  double lane_seconds() const { return lane_seconds_; }
  // Progress: a lane is done, or a bucket is summed. It must outlive the Stepper.
  void set_vitals(const Vitals* vitals) {
    vitals_ = vitals;
    exchange_.set_vitals(vitals);
  }
  // The arena's state was or is about to be changed by something other than a commit: sums and
  // message no longer belong to it.
  void forget();

 private:
  GradientSum::Mode mode() const;
  Status run_lanes();
  Status finish_sums();
  uint64_t lane_hash(int lane, uint64_t gradient) const;
  Status compare_lanes();
  Status check_audit() const;
  Status run_lane(int member, int lane);
  Error not_finite_error(const CommitMessage& message, int lane);
  std::optional<int> first_not_finite(const CommitMessage& message) const;
  bool mend_scales(const CommitMessage& message);
  // Calls body for every block, spread over the team; scratch has room for one block.
  void for_each_block(const std::function<void(size_t block, std::span<float> scratch)>& body);
  double gradient_norm();
  void measure_norms(const optim::StepScalars& scalars);
  void update(const optim::StepScalars& scalars);
  void finish_step(const CommitMessage& message, StepReport& report);
  int64_t fewest_gradient_bits(const CommitMessage& message) const;
  void note_speed(double update_seconds);
  int64_t total_steps() const;  // for schedules that end with the job; 0: unknown
  const optim::TensorInfo& info_of(size_t block) const;
  optim::BlockView view_block(size_t block, std::span<float> scratch);

  const config::Job& job_;
  StepParts parts_;
  const int lanes_;
  SumExchange exchange_;
  std::vector<int> own_lanes_;
  std::unique_ptr<comm::Group> alone_;
  comm::Group* group_;
  Duration timeout_ = std::chrono::seconds(60);  // of an operation of the group
  CommitMessage message_;
  CommitMessage draft_;  // of the commit under way
  std::optional<roster::Position> message_of_;
  bool holds_sums_ = false;
  size_t computed_lanes_ = 0;  // in the last compute()
  double lanes_spent_ = 0;     // by all threads together, in the last compute()
  double lane_seconds_ = 0;
  static const Vitals kNoVitals;
  const Vitals* vitals_ = &kNoVitals;
  std::vector<LaneResult> lane_results_;     // by lane, written by whoever has the lane
  std::vector<double> squares_;              // by block
  std::vector<optim::Norms> block_norms_;    // by block
  std::vector<optim::Norms> tensor_norms_;   // by tensor
  std::vector<std::vector<float>> scratch_;  // by thread, one block each
};

}  // namespace muster::train
