// The snapshots of a run, in RUN/checkpoints/:
//
//   step-000000500/
//     model.safetensors   weights and statistics, named as Python would name them
//     state.safetensors   optimizer state, scales, counters: named bytes, opaque here
//     meta.json           what the caller wants to know again: samples, metrics, signature, ...
//     manifest.json       step, roster, whether it was the best, sizes and hashes of the others;
//     and
//                         its own hash. Written last
//   .tmp-0-step-000001000/    being written by roster 0, or left by a crash; nobody reads it
//   rollback.json         after a rollback: which snapshots are invalid
//   .old-step-000000500/      its replacement was being put in its place; read if that is missing
//
// Crash safety. A snapshot is written aside, every file and the directory are synced, then it is
// renamed and the parent is synced; only after that is an older one removed. So at any moment the
// newest snapshot that loads is the one before or the new one, whole. Each file is checked against
// its hash before anything in it is believed.
//
// Rosters. A worker that was cut off may still think it should write. A snapshot of an older roster
// is refused when one of a newer roster is there at the same or a later step.
//
// Rollbacks. An audit may find that what was computed after some step is wrong
// (train/audit/audit.h). Then the snapshots that rosters up to the present one wrote after that
// step are invalid: they are removed, rollback.json says so, and one that is written late by a
// worker that has not heard of it is refused or not seen. So that there is something to go back to,
// two more are kept: the newest one up to the step that the caller trusts (keep_for_rollback), and
// the one after that, which takes its place as soon as it is trusted.
//
// The best. The caller marks a snapshot as the best so far when it writes it; the newest snapshot
// so marked is the best. The mark is inside the snapshot, so a crash cannot part them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/ckpt/safetensors.h"

namespace muster::ckpt {

// What to write; the bytes belong to the caller.
struct SnapshotView {
  int64_t step = 0;
  uint64_t roster = 0;
  bool best = false;  // the best so far
  std::span<const TensorView> model;
  std::span<const TensorView> state;
  nlohmann::json meta;  // any object. Numbers that are not finite become null
};

// What was read.
struct Snapshot {
  int64_t step = 0;
  uint64_t roster = 0;
  bool best = false;
  std::string path;  // of its directory
  SafetensorsFile model;
  SafetensorsFile state;
  nlohmann::json meta;
};

// A file of a snapshot, as its manifest has it.
struct SnapshotFile {
  std::string name;
  uint64_t size = 0;
  std::string hash;  // XXH3, 32 hexadecimal digits
  bool operator==(const SnapshotFile&) const = default;
};

// What a manifest says, before the tensors are read.
struct SnapshotInfo {
  int64_t step = 0;
  uint64_t roster = 0;
  bool best = false;
  std::string path;
  std::vector<SnapshotFile> files;  // all but the manifest itself, by name

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const auto& file : files) sum += file.size;
    return sum;
  }
};

// The names of a snapshot's directory, and of the file in it that is written last.
std::string snapshot_directory_name(int64_t step);
inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kRollbackFile = "rollback.json";

// Safe for concurrent use, with one write() at a time per directory (the run directory's lock keeps
// other processes away, a SnapshotWriter other threads). Reading never changes the directory.
class SnapshotStore {
 public:
  // Keeps the newest `keep` (at least 1) and, if `keep_best`, the best. The directory is made when
  // it is needed. `progress`: called whenever a part was written or read, from the thread that does
  // it.
  SnapshotStore(FileSystem& fs, std::string directory, int keep, bool keep_best,
                std::function<void()> progress = {});

  // Durable once this returns ok. Replaces one of the same step. An error leaves the others intact
  // and nothing aside; if only the removal of old ones failed, the snapshot is there all the same
  // and the next write tries again.
  Status write(const SnapshotView& snapshot);

  // The newest that is whole, or nothing if there is none. Those passed over are told in `notes`, a
  // sentence each with the reason. An error if there are some and none is whole.
  Result<std::optional<Snapshot>> load_newest(std::vector<std::string>* notes = nullptr);
  // The best, or nothing if none was marked. An error if it is damaged.
  Result<std::optional<Snapshot>> load_best();
  Result<Snapshot> load(int64_t step);
  // Those with a sound manifest, oldest first; their tensors are not looked at. `unreadable`: set
  // if there is one that is not damaged and yet cannot be read (of a newer version, or the disk
  // fails).
  Result<std::vector<SnapshotInfo>> list(std::optional<Error>* unreadable = nullptr);
  // Removes what comes after `step`: for a run that is to go on from there, so that its past is one
  // line. What a roster newer than `roster` wrote stays: others have gone on, and who asks is late.
  Status discard_after(int64_t step, uint64_t roster = std::numeric_limits<uint64_t>::max());

  // The last rollback; {0, 0}: there was none.
  struct Rollback {
    uint64_t roster = 0;  // what rosters up to this one wrote
    int64_t step = 0;     // of later steps is invalid
    bool invalidates(int64_t of_step, uint64_t by_roster) const {
      return roster != 0 && of_step > step && by_roster <= roster;
    }
  };
  Result<Rollback> rollback();
  // The contents of rollback.json. `file` is what an error names.
  static Result<Rollback> parse_rollback(const std::string& text, const std::string& file);
  // Durable once this returns ok. Does nothing if a later rollback is known.
  Status roll_back(const Rollback& rollback);
  // The same, but what is invalid is only not used any more: another process may be removing it.
  Status note_rollback(const Rollback& rollback);
  // Removes what is invalid, and forgets why: for a process that has the run for itself.
  Status finish_rollback();
  // From now on write() keeps the newest snapshot of a step up to `step`, the best of these, and
  // the first one after it. -1: none of them.
  void keep_for_rollback(int64_t step) { kept_for_rollback_ = step; }

  const std::string& directory() const { return directory_; }

 private:
  // A subdirectory that should be a snapshot.
  struct Candidate {
    int64_t step = 0;
    std::string name;
  };
  struct Manifest;

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  Result<std::vector<Candidate>> candidates();
  Result<std::vector<Candidate>> candidates_and_invalid();
  bool is_invalid(const Candidate& candidate, const Rollback& rollback);
  Result<Manifest> read_manifest(const std::string& name);
  Result<Snapshot> read(const Candidate& candidate);
  Status make_directory();
  Status write_files(const SnapshotView& snapshot, const std::string& aside);
  Status put_in_place(const std::string& aside, const std::string& name);
  Status refuse_if_outdated(const SnapshotView& snapshot);
  Status remove_leftovers(uint64_t roster);
  Status remove_superseded(int64_t just_written);
  void mark_damaged(const std::string& name);
  bool is_damaged(const std::string& name);

  FileSystem& fs_;
  const std::string directory_;
  const int keep_;
  const bool keep_best_;
  const std::function<void()> progress_;
  std::atomic<int64_t> kept_for_rollback_{-1};
  bool directory_is_durable_ = false;  // only write() looks at it
  std::mutex mutex_;
  // Found unsound while loading: they do not count among the newest. Guarded by mutex_.
  std::set<std::string> damaged_;
};

}  // namespace muster::ckpt
