// What a run leaves behind and what a person sees of it: metrics, TensorBoard events, checkpoints,
// status and result in the run directory, and the screen.
//
// Of the workers of a job one records at a time, the one of rank 0; the others keep a Recorder that
// is off, so that one of them can take over at any step boundary. What is to be said of the last
// step and evaluation is part of the state, so whoever takes over can say it, if nobody has.
//
// One that was removed while it was suspended does no harm when it continues. It can only append to
// the metrics, and what it appends they have already (track/metrics.h); its checkpoint is refused
// and it removes none, because of its older roster (ckpt/snapshot.h), nor does it send any
// (copy/copy_writer.h); its TensorBoard file is its own; that a job of several is running only its
// launcher says.
//
// Hosts may have run directories of their own (track/run_identity.h). Whoever takes over on such a
// host has not what was recorded elsewhere. The copy has it, but for the last steps: these every
// worker keeps in memory, as they would be in the metrics. Training does not wait for the copy: the
// thread that sends it calls take_over() when it has read it.
//
// For one thread, and that of the copy.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/base/clock.h"
#include "muster/base/file_system.h"
#include "muster/base/log.h"
#include "muster/ckpt/snapshot.h"
#include "muster/ckpt/snapshot_writer.h"
#include "muster/comm/measure_links.h"
#include "muster/copy/copy_sender.h"
#include "muster/track/event_file.h"
#include "muster/track/metrics.h"
#include "muster/track/progress.h"
#include "muster/track/run_directory.h"
#include "muster/train/session.h"

namespace muster::train {

// Everything must outlive the Recorder.
struct RecorderParts {
  track::RunDirectory* run;
  FileSystem* files;
  const Clock* clock;
  Log* log;
  track::Sink* screen;
  track::ProgressMode display = track::ProgressMode::kNormal;
  // Called whenever a file, or a part of a checkpoint, was written, from the thread that writes it:
  // others may be waiting.
  // NOLINTNEXTLINE(readability-redundant-member-init): or who leaves it out is warned by GCC
  std::function<void()> saving = {};
  copy::CopySender* copy = nullptr;  // if the job has checkpoint.to
  // While begin() waits for that copy to be claimed: false ends it.
  // NOLINTNEXTLINE(readability-redundant-member-init): or who leaves it out is warned by GCC
  std::function<bool()> keep_waiting = {};
  // Of several workers, with a copy: lines of the metrics are kept in memory, and what another
  // host has recorded is taken over from the copy.
  bool takes_over = false;
  bool resumable = true;  // false: `muster resume` cannot start this program again
};

// How the last step went, beyond what is in the state.
struct StepTimes {
  double seconds = 0;  // it took; 0: not known
  WallTime when;       // it was committed
  double waited = 0;   // of these seconds, for other workers
};

class Recorder {
 public:
  Recorder(Session& session, const RecorderParts& parts);
  ~Recorder();

  // From the session's present step on, this worker records. `roster`: of the group, 0 without. If
  // whoever recorded before died before it had told of the present step, this one does.
  Status begin(uint64_t roster);
  // The last rollback of the job (roster/types.h): lines in the metrics that it made invalid are
  // written anew. Before begin().
  void set_rollback(const roster::Rollback& rollback);
  // Another one does, or nobody. What is being written is finished first.
  void end();
  bool on() const { return progress_ != nullptr; }
  ckpt::SnapshotStore& store() { return store_; }
  const std::string& directory() const { return parts_.run->path(); }

  // All of these do nothing while it is off, except that warnings always go to the log.
  Status step(const StepTimes& times);
  void evaluating();
  // A thread waits for data; about every 50 ms, while a step or an evaluation is under way. From
  // that thread, which is the only one to call the Recorder at that time. Also goes to the log, if
  // it lasts.
  void waiting(const std::string& what);
  Status evaluated(const EvalReport& report);
  Status links(const comm::Links& links);
  void message(const std::string& text);
  void warn(const std::string& text);
  // Tells the log what was fetched of streamed data so far, also while it is off. step() does so
  // after each pass and every ten minutes.
  void report_data();
  // Behind the training. `seconds`: of training so far.
  Status save(bool best, double seconds);
  // Whether the present step is saved, or about to be.
  bool saved() const { return saved_step_ == session_.arena().counters().step; }
  Moment last_save() const { return last_save_; }
  // Until nothing is left to be written.
  Status flush();
  // The end of the run, after flush(). First the copy, if there is one: a run that is finished is
  // not sent again. False: it is not complete after `limit`. An error: it cannot be completed, and
  // the run directory has everything.
  Result<bool> send_copy(std::optional<Duration> limit);
  // Then result and status.
  Status finish(const nlohmann::json& result);
  // After finish(): the result for the copy. False: it is not there after `limit`. If it cannot be
  // sent, only the log says so.
  bool send_result(Duration limit);
  Status interrupt(int signal, const nlohmann::json& result);

 private:
  Status open(int64_t step);
  Result<bool> finish_copy(std::optional<Duration> limit);
  Status open_metrics(int64_t step);
  Status write_line(nlohmann::json line);  // to the metrics
  nlohmann::json step_line(const StepTimes& times) const;
  void keep_line(const nlohmann::json& line);
  // By the thread of the copy: `history` is what others have recorded.
  Status take_over(const std::string& history);
  Status open_events(int64_t step);
  void warn_of_few_bits(int64_t bits);  // once
  void watch_data();
  void tell_of_damage();
  void note_progress() const;
  double pass() const;
  bool is_due_now() const;      // a line about the present step
  bool step_is_untold() const;  // it is due, and the metrics do not have it

  Session& session_;
  const RecorderParts parts_;
  ckpt::SnapshotStore store_;
  ckpt::SnapshotWriter writer_;
  // What the thread of the copy uses too.
  std::mutex metrics_mutex_;
  std::unique_ptr<track::MetricsWriter> metrics_;  // written to with metrics_mutex_ held
  uint64_t own_begin_ = 0;                         // where in the file the lines of this time begin
  int64_t begun_at_ = 0;                           // the step at which this worker began to record
  std::string kept_;  // the lines of earlier steps that it knew then, with their newlines
  // The last lines that this worker would have written, and their size. Not of the copy's thread.
  std::deque<std::string> lines_;
  size_t lines_size_ = 0;

  std::unique_ptr<track::EventFileWriter> events_;
  std::unique_ptr<track::Progress> progress_;
  std::vector<std::string> notices_;  // for when there is a screen
  // The newest steps of which the metrics tell, 0: none.
  int64_t told_step_ = 0;
  int64_t told_test_ = 0;
  // Where this process began to train, also while another one recorded; -1: not yet.
  int64_t first_step_ = -1;
  Moment began_;
  uint64_t roster_ = 0;
  roster::Rollback rollback_;  // written with metrics_mutex_ held
  bool finished_ = false;
  bool result_announced_ = false;  // to the copy
  // Since when data is waited for without a step in between, and when that is told next.
  std::optional<Moment> waits_since_;
  Moment next_wait_shown_;
  Moment next_wait_logged_;
  bool warned_of_few_bits_ = false;
  bool warned_of_cache_ = false;
  uint64_t told_replaced_ = 0;  // of the damaged blocks that are replaced
  int64_t reported_pass_ = 0;   // after which report_data() was called
  Moment last_report_;
  int64_t saved_step_ = -1;
  Moment last_save_;
  std::optional<Moment> copy_awaited_since_;  // at the end
  bool told_of_copy_ = false;
};

}  // namespace muster::train
