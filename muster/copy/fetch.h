// From the copy of a run (copy_index.h) back to a run directory.
//
// What is fetched: the newest checkpoint that is whole, the best one, and the other files. Each
// file is compared with its size and hash before it counts. A copy that is replaced meanwhile,
// because its run goes on, is begun again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/store/store.h"

namespace muster::copy {

struct Fetched {
  std::string run_directory;
  // The newest step that was fetched; nothing: the copy has no checkpoint, or the run directory has
  // a newer one.
  std::optional<int64_t> step;
  uint64_t bytes = 0;
  std::vector<std::string> notes;  // what was passed over, a sentence each
};

struct FetchOptions {
  std::string to;                                     // where the copy is
  std::string runs = "runs";                          // in which the run gets the name that it had
  std::string run_directory;                          // exactly here; empty: in `runs`
  std::function<void(const std::string& what)> tell;  // what is being fetched; may be empty
};

// A directory that is not there is made, whole or not at all: under another name (.fetch-*) first,
// and what a process that was killed has left there is removed. One that is there must be of the
// same run: it gets the newest checkpoint and the metrics of the copy, if they are newer than what
// it has, and nobody may be training in it. If another process has continued the run since,
// checkpoints that a rollback there made invalid are removed from it. Errors: there is no copy
// (kCheckpoint), or there can be none (kUsage), the directory is of another run (kUsage), nothing
// of the copy is whole (kCheckpoint).
Result<Fetched> fetch_run(store::Store& store, FileSystem& files, const FetchOptions& options);

}  // namespace muster::copy
