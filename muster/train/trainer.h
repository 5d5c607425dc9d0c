// A training run from start to end: a Session, alone or as a member of a multi-worker
// job (membership.h), with evaluation, checkpoints, early stopping and recording (recorder.h)
// around it.
//
// The order of things at a step boundary is fixed, because a checkpoint must hold exactly what an
// undisturbed run has there: commit, evaluate if due (which may find a new best or decide to stop),
// checkpoint if due. So whoever resumes from the checkpoint of step s has nothing of step s left to
// do, and whoever comes to a boundary after a recovery does what is left of it, and nothing twice.
//
// In a multi-worker job all workers do the same at a boundary, because all evaluate. What follows
// from the state (an evaluation every 500 steps, early stopping) each finds out alone. What does
// not (a signal, the clock) one worker requests with a commit flag; the commit combines the flags,
// and all workers act after that step (commit.h: CommitFlags).
//
// Signals to a worker of such a job: SIGINT ends the job. SIGTERM makes this worker leave at the
// next step boundary; no step is redone. The last worker saves a checkpoint first, so that others
// can resume the job. If the coordinator is gone too (its launcher was killed), SIGTERM ends the
// job. A worker alone ends with either.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/file_system.h"
#include "muster/base/log.h"
#include "muster/base/thread.h"
#include "muster/train/due.h"
#include "muster/train/membership/membership.h"
#include "muster/train/recorder.h"
#include "muster/train/restorer.h"
#include "muster/train/session.h"

namespace muster::train {

// What a run needs from outside. Everything must outlive the Trainer.
struct TrainerEnvironment {
  FileSystem* files;
  const Clock* clock;
  Log* log;
  std::function<int()> stop_signal;  // SIGINT or SIGTERM, once it has come; or 0
  // How long the workers of a job may take, once told to stop, to come to the next step boundary.
  // Then each leaves with what it has.
  Duration patience = std::chrono::milliseconds(1200);
  // Continue from a checkpoint although data.train or data.test have changed since.
  bool accept_other_data = false;
  // NOLINTNEXTLINE(readability-redundant-member-init): or who leaves it out is warned by GCC
  CopySource copy = {};  // of a multi-worker job with checkpoint.to
};

enum class EndReason {
  kDone,
  kTime,
  kEarlyStop,
  kSignal,  // told to stop
  kLeft,    // told to go, and the others go on
};

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
  // `membership`: of a multi-worker job; nullptr: this worker has all lanes.
  Trainer(Session& session, Recorder& recorder, TrainerEnvironment environment,
          Membership* membership = nullptr);
  ~Trainer();

  // Alone: takes the newest checkpoint of the run that is whole, or else the initial state. In a
  // multi-worker job that is done when no other member has a state either, in train().
  Status prepare();
  // Trains to the end, or until told to stop.
  Result<TrainSummary> train();
  // What a summary looks like in result.json.
  nlohmann::json describe(const TrainSummary& summary) const;

 private:
  enum class Turn { kAdvance, kEnter, kEnd };

  Result<Turn> enter();
  bool was_interrupted(const Error& error) const;
  bool has_lost_group(const Error& error);
  Status take_up(const Membership::Entry& entry);
  Result<Turn> advance();
  Status settle();
  Result<bool> rows_are_here();
  Result<Turn> step();
  Result<Turn> settle_difference();
  Status roll_back(const std::string& what, const roster::Rollback* rollback, bool keep);
  Membership::Sources sources();
  Status evaluate();
  Result<Turn> conclude(EndReason reason);
  Status complete_copy();
  Status send_result();
  Result<Turn> give_up();

  CommitFlags commit_flags();
  int requested_signal();
  Progressed progressed() const;
  double elapsed() const;
  bool is_better(double value) const;
  bool has_converged() const;
  std::optional<EndReason> ending() const;
  void announce_roster();
  std::string hash_of_all() const;
  TrainSummary summary(EndReason reason) const;
  void watch_for_stop();

  Session& session_;
  Recorder& recorder_;
  TrainerEnvironment env_;
  Membership* membership_;
  Restorer restorer_;
  std::string best_by_;  // the metric that decides
  bool higher_is_better_ = false;
  // What all agreed on for the boundary after flags_step_ steps. `stop` and `time_over` stay.
  CommitFlags flags_;
  int64_t flags_step_ = 0;
  std::vector<roster::WorkerKey> announced_;  // who was in when it was last said
  EndReason reason_ = EndReason::kDone;       // at the end
  std::optional<Error> not_sent_;             // why the copy cannot be completed, likewise
  Moment started_;
  Moment last_eval_time_;

  std::atomic<bool> over_{false};     // no need to watch any more
  std::atomic<bool> gave_up_{false};  // told to stop, and the others did not come along
  std::optional<Thread> stop_watch_;
};

}  // namespace muster::train
