// What a worker of several wants to know of the copy of its run when it starts: whether its run
// directory is the one that recorded last, and which checkpoints the copy has.
//
// Hosts may have run directories of their own (track/run_identity.h). Of these one at a time is
// current: the one from which the copy was claimed last. What the others have is behind, and may
// be of a past that was left: of an attempt that was resumed elsewhere with another number of
// passes, say. Of a directory that is not current only those checkpoints count that the copy has
// too.
//
// For one thread, except stop().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/ckpt/snapshot.h"
#include "muster/copy/copy_index.h"
#include "muster/copy/copy_writer.h"
#include "muster/store/retry.h"

namespace muster::copy {

struct CopyLook {
  bool exists = false;                        // there is a copy of this run
  bool current = true;                        // the directory recorded last, or none has
  bool lost = false;                          // there is none, but this directory had one
  std::vector<CopiedCheckpoint> checkpoints;  // oldest first

  // Whether the copy has this checkpoint of the run directory.
  bool has(const ckpt::SnapshotInfo& checkpoint) const;
  const CopiedCheckpoint* find(int64_t step) const;  // nullptr: it has none
};

class CopyReader {
 public:
  // The files must outlive it. `progress`: called after each part that was fetched; may be empty.
  CopyReader(std::unique_ptr<store::RetryStore> store, FileSystem& files, CopyOptions options,
             std::function<void()> progress);

  // Looks at the copy. In a directory that is not current, rollback.json becomes that of the copy,
  // unless it is of a later roster than those that have claimed the copy. An error (kIo): the
  // copy cannot be read.
  Result<CopyLook> look();
  // Fetches a checkpoint of the last look() into the run directory, in the place of one that is not
  // the same. An error of kind kCheckpoint or kData: it is damaged, or not there any more.
  Status fetch(const CopiedCheckpoint& checkpoint);

  // All calls, one that is under way too, return an error of kind kInterrupted from now on. From
  // any thread.
  void stop() { store_->stop(); }
  const std::string& to() const { return options_.to; }

 private:
  Status take_over_rollback(const StoredIndex& stored);

  const std::unique_ptr<store::RetryStore> store_;
  FileSystem& files_;
  const CopyOptions options_;
  const std::function<void()> progress_;
  std::optional<StoredIndex> stored_;  // as it was last looked at
};

}  // namespace muster::copy
