// A training run from start to end: a Session, with the run directory, checkpoints, evaluation,
// early stopping and the screen around it.
//
// The order of things at a step boundary is fixed, because a checkpoint must hold exactly what an
// undisturbed run has there: commit, evaluate if due (which may find a new best or decide to stop),
// checkpoint if due. So whoever resumes from the checkpoint of step s has nothing of step s left to
// do.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/file_system.h"
#include "muster/base/log.h"
#include "muster/ckpt/snapshot.h"
#include "muster/ckpt/snapshot_writer.h"
#include "muster/track/event_file.h"
#include "muster/track/metrics.h"
#include "muster/track/progress.h"
#include "muster/track/run_directory.h"
#include "muster/train/session.h"

namespace muster::train {

// What a run needs from outside. Everything must outlive the Trainer.
struct TrainerEnvironment {
  FileSystem* files;
  const Clock* clock;
  Log* log;
  std::function<int()> stop_signal;  // the signal that asks to save and leave, or 0
};

enum class EndReason { kDone, kTime, kEarlyStop, kSignal };

struct TrainSummary {
  EndReason reason = EndReason::kDone;
  int signal = 0;
  std::string weights_hash;
  Counters counters;
  double seconds = 0;                                // of this process, from the first step on
  std::vector<std::pair<std::string, double>> test;  // the last evaluation; empty without test data
};

class Trainer {
 public:
  // `run` is where everything is written.
  Trainer(Session& session, track::RunDirectory& run, TrainerEnvironment environment);
  ~Trainer();

  // Starts from model.init_from, if the job says so.
  Status start();
  // Starts from the run's newest checkpoint that is whole. If there is none yet, like start().
  Status resume();
  // Trains to the end, or until told to stop.
  Result<TrainSummary> train(track::Progress& progress);

 private:
  Status open_outputs();
  // Into the log, and to the person: at once, or when there is a screen.
  void warn(const std::string& message);
  Status load(const ckpt::Snapshot& snapshot);
  Status step();
  Status evaluate();
  Status save(bool best);
  Status record_step(const StepReport& report, double seconds);
  // Passes done, as a real number.
  double pass() const;
  bool is_better(double value) const;
  bool finished() const;

  Session& session_;
  track::RunDirectory& run_;
  TrainerEnvironment env_;
  track::Progress* progress_ = nullptr;  // while train() runs
  std::vector<std::string> notices_;     // for when it begins to
  ckpt::SnapshotStore store_;
  ckpt::SnapshotWriter writer_;
  std::unique_ptr<track::MetricsWriter> metrics_;
  std::unique_ptr<track::EventFileWriter> events_;
  std::string best_by_;  // the metric that decides
  bool higher_is_better_ = false;
  EvalReport last_eval_;
  int64_t last_eval_step_ = -1;
  int64_t saved_step_ = -1;
  Moment started_;
  Moment last_save_;
  Moment last_eval_time_;
  double seconds_before_ = 0;  // trained before this process, for time limits
};

}  // namespace muster::train
