// Where the training state comes from when no worker has it: a checkpoint of the run, or the
// initial state of the job.
#pragma once

#include <cstdint>
#include <set>

#include "muster/base/file_system.h"
#include "muster/base/log.h"
#include "muster/ckpt/snapshot.h"
#include "muster/train/membership/recovery.h"
#include "muster/train/recorder.h"
#include "muster/train/session.h"

namespace muster::train {

// As checkpoints know it.
ckpt::SnapshotStore::Rollback as_stored(const roster::Rollback& rollback);

// The rows of a checkpoint, by shard (StepRows::save).
Result<std::vector<std::string>> saved_rows(const ckpt::SafetensorsFile& state);

// Those of model.init_from that fit, if the job has it: how many tensors.
Result<size_t> load_initial_weights(Session& session, FileSystem& files);

class Restorer {
 public:
  // All must outlive it. `accept_other_data`: also a checkpoint of a run whose data.train or
  // data.test were others.
  Restorer(Session& session, Recorder& recorder, FileSystem& files, Log& log,
           bool accept_other_data)
      : session_(session),
        recorder_(recorder),
        files_(files),
        log_(log),
        accept_other_data_(accept_other_data) {}

  // Alone: the newest checkpoint that is whole, or else the initial state.
  Status newest();

  // With others: the newest step that could be restored, if `known` is the last rollback that this
  // worker knows of. `repair`: this worker tells the store of that rollback.
  Result<Recovery::Restorable> restorable(const roster::Rollback& known, bool repair);
  // The state after this step; 0: the initial state. False: that checkpoint cannot be used, and
  // restorable() will not offer it again. `roster`: the number of the one that does so, all of it.
  Result<bool> restore(uint64_t step, uint64_t roster);

  // For how long the restored state had been trained.
  double seconds_before() const { return seconds_before_; }

 private:
  Status load(const ckpt::Snapshot& snapshot);
  Status check_weights(const ckpt::Snapshot& snapshot);
  Status make_initial();
  Status load_rows(std::vector<std::string> shards);

  Session& session_;
  Recorder& recorder_;
  FileSystem& files_;
  Log& log_;
  const bool accept_other_data_;
  std::set<int64_t> unreadable_;  // steps whose checkpoints could not be loaded
  double seconds_before_ = 0;
  uint64_t roster_ = 0;  // 0: alone
};

}  // namespace muster::train
