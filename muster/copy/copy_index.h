// A copy of a run in a store (the option checkpoint.to), for a machine that is lost:
//
//   TO/latest.json                                   CopyIndex: which files the copy has
//   TO/3-1/checkpoints/step-000000500/model.safetensors
//   TO/3-1/metrics.jsonl
//   TO/3-2/...
//
// Files keep their names within the run directory. The first part of an object's name says who
// wrote it: 3-2 is what the third process to claim the copy sent in its second part. No two
// processes have the same claim, so no object is ever overwritten, but for latest.json. That one is
// written last and under a condition (If-Match): whatever it names is complete, and a process that
// another one has taken over from finds its condition broken (copy_writer.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"
#include "muster/ckpt/snapshot.h"
#include "muster/store/store.h"
#include "muster/track/run_identity.h"

namespace muster::copy {

inline constexpr const char* kIndexFile = "latest.json";
// Of the run directory, in CopyIndex::files.
inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kResultFile = "result.json";

struct CopiedFile {
  std::string name;    // in the run directory: "metrics.jsonl"
  std::string object;  // in the copy: "3-2/metrics.jsonl"
  uint64_t size = 0;
  std::string hash;  // XXH3, 32 hexadecimal digits
  bool operator==(const CopiedFile&) const = default;
};

struct CopiedCheckpoint {
  int64_t step = 0;
  uint64_t roster = 0;
  bool best = false;  // marked as the best so far when it was written
  std::vector<CopiedFile> files;
  bool operator==(const CopiedCheckpoint&) const = default;
};

struct CopyIndex {
  std::string run;                            // random, the same for the life of the run
  std::string name;                           // of the run directory
  uint64_t claim = 0;                         // how often the copy was claimed
  std::string writer;                         // random: who has the claim
  std::string host;                           // its machine, for people
  uint64_t roster = 0;                        // the newest of those that claimed it
  std::vector<CopiedFile> files;              // what is not part of a checkpoint
  std::vector<CopiedCheckpoint> checkpoints;  // oldest first
  bool operator==(const CopyIndex&) const = default;

  std::string encode() const;
  // Errors (kCheckpoint): it is not what encode() wrote, or names a file outside of the run
  // directory.
  static Result<CopyIndex> decode(std::string_view text);

  const CopiedFile* find(std::string_view name) const;  // among `files`
  // The newest one, the newest one that is marked; nullptr: there is none.
  const CopiedCheckpoint* newest() const;
  const CopiedCheckpoint* best() const;
};

struct StoredIndex {
  CopyIndex index;
  std::string version;  // of latest.json
};

// A place as the user writes it, without file:// before a path and '/' at the end.
std::string plain_place(std::string to);
// "TO/NAME", of a plain place.
std::string address_in(const std::string& to, std::string_view name);

// Nothing if there is no copy in `to`.
Result<std::optional<StoredIndex>> read_index(store::Store& store, const std::string& to);

// Of which run a directory is, and what it knows of the copy.
using track::random_id;
using track::read_run_id;
using track::RunId;
using track::write_run_id;

// Whether the copy has this checkpoint of the run directory.
bool is_same(const ckpt::SnapshotInfo& local, const CopiedCheckpoint& copied);

}  // namespace muster::copy
