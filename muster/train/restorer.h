// Where the training state comes from when no worker has it: a checkpoint of the run, or the
// initial state of the job.
//
// Hosts may have run directories of their own (track/run_identity.h). Each worker then offers the
// checkpoints on its disk, and the one of rank 0 also those of the copy; the group takes the newest
// (roster/agree.h), and those that do not have it receive the state. Of a directory that is not the
// one that recorded last, only what the copy has too is offered (copy/copy_reader.h).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "muster/base/file_system.h"
#include "muster/base/log.h"
#include "muster/ckpt/snapshot.h"
#include "muster/copy/copy_reader.h"
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

// The copy of the run, for a worker of several.
struct CopySource {
  copy::CopyReader* reader = nullptr;  // null: there is none
  // As it was before this worker joined.
  // NOLINTNEXTLINE(readability-redundant-member-init): or who leaves it out is warned by GCC
  copy::CopyLook seen = {};
  // The run directory is this host's own: it alone does not tell where the run is.
  bool is_needed = false;
};

class Restorer {
 public:
  // All must outlive it. `accept_other_data`: also a checkpoint of a run whose data.train or
  // data.test were others.
  Restorer(Session& session, Recorder& recorder, FileSystem& files, Log& log,
           bool accept_other_data, CopySource copy = {})
      : session_(session),
        recorder_(recorder),
        files_(files),
        log_(log),
        accept_other_data_(accept_other_data),
        copy_(std::move(copy)) {}

  // Alone: the newest checkpoint that is whole, or else the initial state.
  Status newest();

  // With others.
  struct Question {
    roster::Rollback known;  // the last rollback that this worker knows of
    bool is_first = false;   // rank 0: tells the store of that rollback, and speaks for the copy
    bool is_behind = false;  // others may have gone on without this worker: the copy is looked at
  };
  // The newest step that could be restored.
  Result<Recovery::Restorable> restorable(const Question& question);
  // The state after this step; 0: the initial state. False: that checkpoint cannot be used, and
  // restorable() will not offer it again. `roster`: the number of the one that does so, all of it.
  Result<bool> restore(uint64_t step, uint64_t roster);

  // For how long the restored state had been trained.
  double seconds_before() const { return seconds_before_; }

 private:
  Status look_at_copy();
  // Whether a checkpoint on the disk is of the run as it is now.
  bool counts(const ckpt::SnapshotInfo& checkpoint) const;
  // From the copy, if it is there and not on the disk. False: it is damaged.
  Result<bool> fetch(uint64_t step);
  Status load(const ckpt::Snapshot& snapshot);
  Status check_weights(const ckpt::Snapshot& snapshot);
  Status make_initial();
  Status load_rows(std::vector<std::string> shards);

  Session& session_;
  Recorder& recorder_;
  FileSystem& files_;
  Log& log_;
  const bool accept_other_data_;
  CopySource copy_;
  // Step and roster of checkpoints that were on the disk before this worker was in a group, and
  // that the copy did not have. Nothing: it was in none yet.
  std::optional<std::set<std::pair<int64_t, uint64_t>>> left_;
  std::set<int64_t> unreadable_;  // steps whose checkpoints could not be loaded
  double seconds_before_ = 0;
  uint64_t roster_ = 0;  // 0: alone
};

}  // namespace muster::train
