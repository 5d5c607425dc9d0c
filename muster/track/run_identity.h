// Of which run a directory is, and for which attempt to train it the directory is ready.
//
//   copy.json      RunId: the run, and what its directory knows of the copy (checkpoint.to)
//   attempt.json   the attempt: random, drawn by a launcher each time it starts or resumes the run
//
// With checkpoint.to, hosts need not share the run directory: a worker makes one of its own at the
// same path from what the coordinator tells it (RunOffer). Whether a directory is the launcher's,
// one that was made before, or another run's is decided by these two files, never by its path:
//
//   run and attempt as offered    ready: the launcher's directory, which may be on shared storage,
//                                 or one that another worker of this host has made ready
//   the same run                  of an earlier attempt: made ready for this one
//   another run, or no run        left alone; the worker is refused
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/base/run_offer.h"
#include "muster/track/run_directory.h"

namespace muster::track {

// copy.json
struct RunId {
  std::string run;           // random, the same for the life of the run; empty: none was drawn yet
  std::string writer;        // CopyIndex::writer of the last claim from this directory
  int64_t passed_over = -1;  // the newest step that was damaged when it was fetched; -1: none was
  // NOLINTNEXTLINE(readability-redundant-member-init): or who leaves it out is warned by GCC
  std::string claiming = {};  // a claim that was begun; whether it succeeded only the copy knows
  // NOLINTNEXTLINE(readability-redundant-member-init): or who leaves it out is warned by GCC
  std::string to = {};  // where the copy of `writer` is; empty: not known

  // Whether the last claim of a copy, which has this writer, was made from this directory.
  bool claimed_as(const std::string& copy_writer) const {
    return copy_writer == writer || (!claiming.empty() && copy_writer == claiming);
  }
};
Result<RunId> read_run_id(FileSystem& files, const std::string& run_directory);
Status write_run_id(FileSystem& files, const std::string& run_directory, const RunId& id);
// 32 hexadecimal digits.
std::string random_id();

struct AttemptOptions {
  // The run is started or resumed; otherwise its workers may still be training, and the attempt
  // stays the same.
  bool anew = true;
  std::string to;               // checkpoint.to
  bool has_checkpoint = false;  // in this directory
};
// For a launcher: draws what the run has not, and says in the directory that it is ready. An error
// (kUsage) if the copy was to be elsewhere before and the directory has no checkpoint: other
// machines may have some, and only the copy tells which of them count.
Result<RunOffer> begin_attempt(FileSystem& files, const RunDirectory& run,
                               const AttemptOptions& options);

// For a worker: makes the directory at `path` ready for what is offered, or finds it so. `renew` is
// called for one of an earlier attempt, before it is marked as ready. True: it is the launcher's
// own directory. Errors: of kind kRefused if there is something else at `path`. Safe for concurrent
// use by processes of one host; a directory that is ready is only read.
Result<bool> make_ready(FileSystem& files, const std::string& path, const RunOffer& offer,
                        const std::function<Status()>& renew);

// The right to change files of a directory that other workers of this host may use too. Waits for
// it.
Result<RunLock> lock_for_changes(const std::string& path);

}  // namespace muster::track
