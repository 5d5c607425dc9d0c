// Runs lanes: the team takes them one by one, reads each one's samples, and computes forward and
// backward; the gradients go to the GradientSum that the nets were made with.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/result.h"
#include "muster/data/loader.h"
#include "muster/data/schema.h"
#include "muster/train/membership/vitals.h"
#include "muster/train/step/commit.h"
#include "muster/train/step/lane_net.h"
#include "muster/train/step/team.h"

namespace muster::train {

class LaneRunner {
 public:
  // `nets`: one for each member of the team. All must outlive it.
  LaneRunner(Team& team, std::span<const std::unique_ptr<LaneNet>> nets, const data::Schema& schema,
             int lanes);

  // Where samples come from. Before the first run, and not while one is under way; both must
  // outlive the runs. `batches` may change between steps, as the state is replaced.
  void set_loader(data::Loader* loader, const data::BatchPlan* batches);
  // Progress: a lane is done. It must outlive the LaneRunner.
  void set_vitals(const Vitals* vitals) { vitals_ = vitals; }

  // A lane's gradient is weighted by its share of the samples of these lanes; at first of all.
  void take_mean_over(std::vector<int> lanes) { mean_over_ = std::move(lanes); }
  // How many these are in a step. 0 only in the last one, if it is short.
  uint64_t samples_of_mean(int64_t step) const { return samples_of(step, mean_over_); }
  // Of some lanes in a step; none named: of all.
  uint64_t samples_of(int64_t step, std::span<const int> lanes) const;

  // What the thread that computes a lane, `member` of the team, does before and after it; not for a
  // lane without samples. `end` may change the lane's result.
  struct Around {
    std::function<void(int member, int64_t step, int lane)> begin;
    std::function<Status(int member, int64_t step, int lane, LaneResult& result)> end;
  };
  // At first nothing. Not while lanes run.
  void set_around(Around around) { around_ = std::move(around); }

  // Computes these lanes of a step, in this order as far as threads are free, unless `stop` says
  // that it is no use to begin another. The first error of a lane ends it.
  Status run(int64_t step, std::span<const int> lanes, const std::function<bool()>& stop);
  // From `step` on these blocks of the data are replaced, and no others (data::Loader::replace).
  // Not while lanes run.
  Status replace(int64_t step, std::span<const uint64_t> damaged);
  // Why lanes could not be computed because of damaged data (LaneResult::damaged), since the last
  // call; a sentence for each.
  std::vector<std::string> take_damage();
  // From any lane thread that waits for data that is streamed, now and then: says that this worker
  // makes progress as far as it can, and whether the run under way is still of use.
  bool keep_waiting() const;
  // What the last run gave.
  const LaneResult& result(int lane) const { return results_[static_cast<size_t>(lane)]; }
  double seconds() const { return seconds_; }  // all threads together

  // Steps of the job, for schedules that end with it; 0: unknown.
  int64_t total_steps() const;
  // Why the result of a lane is not finite, and what to do about it. `tensor`: whose gradient is
  // not, or "". `may_skip`: whether not_finite: skip is possible.
  Error explain_not_finite(int64_t step, int lane, const LaneResult& result,
                           const std::string& tensor, bool may_skip = true);

 private:
  Status run_lane(int member, int64_t step, int lane);

  Team& team_;
  std::span<const std::unique_ptr<LaneNet>> nets_;
  const data::Schema& schema_;
  data::Loader* loader_ = nullptr;
  const data::BatchPlan* batches_ = nullptr;
  const Vitals* vitals_;
  std::vector<int> mean_over_;  // empty: all
  Around around_;
  std::vector<LaneResult> results_;  // by lane, written by whoever has the lane
  double seconds_ = 0;
  std::mutex damage_mutex_;
  std::vector<std::string> damage_;                          // guarded by damage_mutex_
  std::atomic<const std::function<bool()>*> stop_{nullptr};  // of the run under way
};

}  // namespace muster::train
