// Keeps the copy of a run (copy_index.h) up to date.
//
// One process at a time does so. It claims the copy first, which replaces latest.json; each later
// replacement is on the condition that latest.json is still the one that this process wrote. So a
// process that was taken for dead and is not (suspended, cut off) cannot put older checkpoints in
// the place of newer ones: its next replacement finds the condition broken, and it stops. Of
// several workers of a job, one of an older roster does not get the claim from one of a newer
// roster. A worker alone (roster 0) always gets it: whoever was started last.
//
// A copy belongs to one run: another run is refused.
//
// An upload that is cut off leaves objects that latest.json does not name. Nobody reads them, and
// the next one to claim the copy removes them. A place that objects may not be removed from works
// too, and keeps what was superseded.
//
// The copy has what the run directory has: all its checkpoints, and of those that only the copy
// has, as many as the job keeps.
//
// Hosts may have run directories of their own. If the last claim was made from another directory,
// this one lacks what was recorded there: before a group claims the copy, the history in it becomes
// that of this directory (TakeOver), so that what is sent next has all of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/ckpt/snapshot.h"
#include "muster/copy/copy_index.h"
#include "muster/store/store.h"

namespace muster::copy {

struct CopyOptions {
  std::string to;             // where the copy is: s3://bucket/prefix, or a directory
  std::string run_directory;  // on the real disk
  int keep = 3;               // as checkpoint.keep
  bool keep_best = true;      // as checkpoint.best
  // Of a host that does not share the launcher's directory: then the copy alone says what of it is
  // of the run as it is now. A directory that all share has recorded all of the run, also if it was
  // last copied elsewhere.
  bool own_directory = false;

  // Whether the run directory is behind a copy that this writer has claimed.
  bool is_behind(const RunId& own, const std::string& writer) const {
    return !own.claimed_as(writer) && (own_directory || own.writer.empty() || own.to == to);
  }
};

// For one thread. The store and the files must outlive it.
class CopyWriter {
 public:
  CopyWriter(store::Store& store, FileSystem& files, CopyOptions options);

  enum class Outcome {
    kDone,
    kTakenOver,  // by another process: this one must not send any more. taker() says by whom
  };
  // Given the metrics of the copy, makes those of the run directory continue them.
  using TakeOver = std::function<Status(const std::string& metrics)>;
  // Makes this process the one that writes the copy. `roster`: of the group that it records for, 0
  // without. `step`: where it continues. If the copy has later steps, the run directory is behind,
  // which is an error (kUsage). They are dropped, so that the run's past is one line, if they were
  // found to be damaged when the copy was fetched, and by a group, which knows the newest state, if
  // the last claim was made from the same directory, or if the group has written a checkpoint of
  // such a step itself. An error (kUsage) if the copy is of another run. `take_over`: called first
  // if the last claim was made from another directory; checkpoints here that earlier rosters wrote
  // and the copy has not are then removed, because the run went on without them. Empty: nothing is
  // taken over.
  Result<Outcome> claim(uint64_t roster, int64_t step, const TakeOver& take_over = {});
  // Sends what the run directory has and the copy has not, the newest checkpoint first. After a
  // claim.
  Result<Outcome> send();

  // Why an object that the copy does not need any more could not be removed, since the last call;
  // empty: all could.
  std::string take_unremoved() { return std::exchange(unremoved_, {}); }
  // The machine of the process that took over.
  const std::string& taker() const { return taker_; }
  const CopyOptions& options() const { return options_; }

 private:
  // Whether a group has written a checkpoint of this step or a later one since this roster.
  Result<bool> has_trained_to(int64_t step, uint64_t roster);
  // What was recorded from another directory.
  Status take_over_from(const StoredIndex& there, uint64_t roster, const TakeOver& take_over);
  Result<Outcome> send_missing();
  // Whether there is a result, and the copy has another or none.
  Result<bool> has_new_result();
  // A checkpoint of the run directory that the copy has not; nothing if it has all.
  std::optional<ckpt::SnapshotInfo> missing(const std::vector<ckpt::SnapshotInfo>& local) const;
  Result<CopiedCheckpoint> upload(const ckpt::SnapshotInfo& checkpoint);
  Result<CopiedFile> upload(const std::string& name, std::span<const std::byte> bytes,
                            std::string hash);
  // What is not part of a checkpoint, as it is now; what has not changed is not sent again.
  Result<std::vector<CopiedFile>> upload_others();
  // Drops what is neither in the run directory nor to be kept.
  void drop_superseded(CopyIndex& next, const std::vector<ckpt::SnapshotInfo>& local,
                       const ckpt::SnapshotStore::Rollback& rollback) const;
  Result<Outcome> publish(CopyIndex next);
  // Of an object that is not part of the copy. An error only if it was interrupted.
  Status remove(const std::string& address);
  Status remove_leftovers();
  // What was sent and has not become part of the copy, unless `index` names it.
  Status remove_unnamed(const CopyIndex& index);
  Result<Outcome> lose();

  store::Store& store_;
  FileSystem& files_;
  const CopyOptions options_;
  ckpt::SnapshotStore local_;
  CopyIndex index_;                   // as it was last written by this process
  std::string version_;               // of latest.json then
  bool published_ = false;            // something was sent since the claim: at least the job
  uint64_t part_ = 0;                 // counts what was sent since the claim
  std::vector<std::string> unnamed_;  // objects that were sent since index_ was written
  std::string taker_;
  std::string unremoved_;
};

}  // namespace muster::copy
