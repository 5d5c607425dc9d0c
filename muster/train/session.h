// A job made ready to compute: data opened, model built, threads started. It knows nothing of run
// directories or screens, and of disks only that indexes and caches of data may be there; trainer.h
// puts those around it, benchmarks and tests use it alone.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/base/job_fingerprint.h"
#include "muster/base/thread.h"
#include "muster/config/job.h"
#include "muster/data/blocks/open_blocks.h"
#include "muster/data/dataset.h"
#include "muster/data/loader.h"
#include "muster/model/registry.h"
#include "muster/optim/optimizer.h"
#include "muster/store/store.h"
#include "muster/train/evaluate.h"
#include "muster/train/membership/vitals.h"
#include "muster/train/rows/step_rows.h"
#include "muster/train/rows/tables.h"
#include "muster/train/state/arena.h"
#include "muster/train/step/gradient_sum.h"
#include "muster/train/step/lane_net.h"
#include "muster/train/step/lane_runner.h"
#include "muster/train/step/strategy.h"
#include "muster/train/step/team.h"

namespace muster::train {

// Where data that is read by blocks is, for all sources of a job, unless the job itself says so.
struct DataPlaces {
  std::string indexes;  // directory in which indexes are saved; empty: they are not
  // That of the test data, if it is another one; it takes precedence over the job's.
  std::optional<std::string> test_indexes;
  std::shared_ptr<store::Store> store;  // null: one for all addresses
  // While data is opened: called now and then, false ends it; and what takes long.
  data::KeepWaiting keep_waiting;
  std::function<void(const std::string& what)> tell;
};

// Models, losses and data formats that a job may name: the built-in ones and those of the program
// that links this library.
struct Registries {
  model::Registry models = model::Registry::builtin();
  data::Registry data = data::Registry::builtin();
  OwnLanes* own_lanes = nullptr;    // if the program has a loop of its own
  Memory* memory = &host_memory();  // for training state, sums and batches
  std::string servers;              // where the job's parameter servers are registered; empty: none
  DataPlaces places = {};           // NOLINT(readability-redundant-member-init)
  // Other tables than those there, or in this process; empty: those.
  std::function<Result<std::unique_ptr<Tables>>(const config::Job&)> tables;
};

// The site of a worker, if its members compute units together (Strategy::join_site).
struct SiteGroup {
  comm::Group* group = nullptr;  // null: none
  int leader = 0;                // its rank in the group of all
};

class Session {
 public:
  // Builds everything that does not depend on where training starts. `registries` must outlive it.
  static Result<std::unique_ptr<Session>> open(config::Job job, const Registries& registries);

  const config::Job& job() const { return job_; }
  const data::Schema& schema() const { return plan_.schema; }
  const NetPlan& plan() const { return plan_; }
  Arena& arena() { return *arena_; }
  StepRows* rows() { return rows_.get(); }  // null: the job has no tables
  TaskRows* tasks() { return tasks_; }      // null: it does not train asynchronously
  // What the strategy works with.
  StrategyParts parts();
  // Reads ahead from the arena's step on. assign() and step() do so themselves.
  void start_loader();
  // Rows become those of the arena's step, which all members of the group have come to. Collective.
  Status publish_rows() { return strategy_->publish_rows(); }
  int threads() const { return team_->threads(); }
  const data::SampleOrder& order() const { return *loading_.order; }
  uint64_t train_samples() const { return train_->size(); }
  // Steps that passes and steps allow; 0 if only time limits the job. Depends on the state: a short
  // step in the past (data/plan.h) does not count as a whole one.
  int64_t total_steps() const;
  // How the samples of this job fall into steps and lanes, from the arena's present step on.
  data::BatchPlan batches() const;
  bool has_test() const { return !job_.data.test.format.empty(); }

  // With whom, and which units of work (sync::units_of) are whose (by rank), from the arena's
  // present step on. Collective calls (step, evaluate) are then made by all members of the group,
  // which must outlive them. Without it: all, alone. `newcomers`: Auditor::assign. `site`: whose
  // members compute the units of its leader together.
  void assign(const std::vector<std::vector<int>>& units, comm::Group& group, Duration timeout,
              std::vector<int> newcomers = {}, const SiteGroup& site = {});

  // Whom to tell that work makes progress; nullptr: nobody. It must outlive its use.
  void set_vitals(const Vitals* vitals);
  const Vitals& vitals() const { return *vitals_; }
  // Called about every 50 ms by whichever thread waits for data in step() or evaluate(), by one at
  // a time: `what` is "waiting for data: 3 requests, oldest 1.2 s". False ends the wait, and then
  // the call gives an error of kind kInterrupted. A group that has failed ends it too.
  void set_on_waiting(std::function<bool(const std::string& what)> on_waiting);
  // Back to the initial state of the job, as if nothing had been trained. Reads model.file again,
  // if there is one, and fails if it has changed.
  Status reset();
  // Computes and commits the arena's next step. The first call fixes where the loader starts: set
  // the arena's state before, or call assign() after.
  Result<StepReport> step(const std::function<CommitFlags()>& flags = {});
  Strategy& strategy() { return *strategy_; }
  Auditor& auditor() { return *auditor_; }
  // On the test data; has_test() must be true.
  Result<EvalReport> evaluate();
  // Puts the figures into the state, as of the present step; and takes them out again.
  void remember(const EvalReport& report);
  EvalReport last_evaluation() const;
  // The step that led to the present state; there must have been one.
  StepReport last_step() const;
  // The model's output for a batch. `schema`: of its inputs, if they are not as in training.
  Result<torch::Tensor> predict(const data::Batch& batch, const data::Schema* schema = nullptr);
  // Calls body(net, i) once for each i below `count`, on the lane threads, each with a net of its
  // own. After an error no more are begun; the one of the lowest i is returned.
  Status for_each_net(size_t count, const std::function<Status(LaneNet& net, size_t i)>& body);
  // Runs the model on one sample, and in training mode on as few as a lane may have, so that what
  // does not fit is found before training starts.
  Status try_forward();
  // Whether the model takes as many samples at once as evaluation gives it, as far as its file
  // tells.
  Status check_evaluation(const data::Dataset& test) const;
  // Opened when first asked for.
  Result<const data::Dataset*> test_data();
  const data::Dataset& train_data() const { return *train_; }
  // For the log, a line for each source that is streamed, and one for the store: "data.train: 12
  // blocks (48 MB) fetched, ...". None if all data is in memory.
  std::vector<std::string> fetched() const;
  // Why a cache of blocks on disk keeps nothing more; else empty.
  std::string cache_problem() const;
  // Of the damaged blocks that are replaced (Counters::replaced), from number `first` on: "block 12
  // ('s3://bucket/a.tar', ...)".
  std::vector<std::string> replaced_blocks(uint64_t first) const;
  // What this worker itself found to be damaged since the last call: a sentence for each.
  std::vector<std::string> take_damage() { return lane_runner_->take_damage(); }

  // Begins to compute the job's fingerprint on this machine; again: nothing. Call it before the
  // state changes, because the model is run with its initial weights. Opens test data that is read
  // by blocks, and so makes its index. The rest is left to a thread of its own: it hashes the data,
  // and opens other test data, so that the first step need not wait for them.
  Status begin_fingerprint();
  // Waits until it is complete. Empty if it was not begun.
  Result<JobFingerprint> fingerprint();
  // Of the contents of model.file; empty: the job has none.
  const std::string& model_file_hash() const { return model_file_; }

 private:
  struct HashedData {
    std::string train;
    std::string test;
    std::unique_ptr<data::Dataset> test_data;
  };
  Session(config::Job job, const Registries& registries);
  Status open_model_file();
  Status open_data();
  Result<std::unique_ptr<data::Dataset>> open_source(const std::string& key,
                                                     const config::SourceOptions& source) const;
  bool has_lost_group() const;
  bool wait_for_data() const;
  Status check_own_loop() const;
  config::SourceOptions test_source() const;
  Result<std::unique_ptr<data::Dataset>> open_test() const;
  Result<HashedData> hash_data() const;
  Status finish_hashing();
  Status open_rows();
  Status build_nets();
  std::unique_ptr<GradientSum> make_sum(bool few) const;
  Status check_lanes_of(const data::BatchPlan& batches, uint64_t step) const;
  Status check_lanes() const;
  Status try_smallest_lanes();
  Status try_own_lane(uint64_t samples, std::string why);

  config::Job job_;
  const Registries& registries_;
  NetPlan plan_;
  std::string model_file_;                                         // hash
  const std::unique_ptr<FileSystem> files_ = posix_file_system();  // for indexes and caches of data
  data::BlockSetup setup_;
  std::unique_ptr<data::Dataset> train_;
  std::unique_ptr<data::Dataset> test_;  // opened when first needed; unchanged while hashing_ runs
  data::LoaderPlan loading_;             // its batches: from where the loader began
  std::unique_ptr<StepRows> rows_;
  TaskRows* tasks_ = nullptr;       // the same, of asynchronous training
  SyncWeights* weights_ = nullptr;  // the same, of steps with all of the model on servers
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Arena> work_;  // what nets compute with in periodic strategies; else null
  std::unique_ptr<Auditor> auditor_;
  std::unique_ptr<GradientSum> sum_;
  // StrategyParts::lane_sums, but for the first; else none.
  std::vector<std::unique_ptr<GradientSum>> more_sums_;
  std::vector<std::unique_ptr<LaneNet>> nets_;
  std::vector<float> initial_;  // weights of a program's own module, which cannot be built again
  std::unique_ptr<Team> team_;
  std::unique_ptr<LaneRunner> lane_runner_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<data::Loader> loader_;  // once training begins
  bool tried_ = false;                    // the smallest lanes
  comm::Group* group_ = nullptr;
  comm::Group* site_ = nullptr;       // of the site, if its members compute together
  std::vector<size_t> shares_ = {1};  // by rank: how many units, a measure of speed
  Duration timeout_ = std::chrono::seconds(60);
  const Vitals* vitals_ = &kNoVitals;
  mutable std::mutex waiting_mutex_;
  std::function<bool(const std::string&)> on_waiting_;  // called with waiting_mutex_ held
  JobFingerprint fingerprint_;                          // of the data: once hashed_ was looked at
  std::optional<Result<HashedData>> hashed_;
  Thread hashing_;  // writes hashed_. Last: it reads the rest
};

}  // namespace muster::train
