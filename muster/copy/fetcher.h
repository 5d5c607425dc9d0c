// Fetches the files of one state of a copy. Each is compared with its size and hash before it
// counts.
//
// For one thread.
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

class Fetcher {
 public:
  struct Callbacks {
    // What is being fetched. May be empty.
    // NOLINTNEXTLINE(readability-redundant-member-init): or who leaves it out is warned by GCC
    std::function<void(const std::string& what)> tell = {};
    // After each part of a file. May be empty.
    // NOLINTNEXTLINE(readability-redundant-member-init): or who leaves it out is warned by GCC
    std::function<void()> progress = {};
  };
  // The store and the files must outlive it. `to`: a plain place.
  Fetcher(store::Store& store, FileSystem& files, std::string to, StoredIndex stored,
          Callbacks callbacks);

  const CopyIndex& index() const { return stored_.index; }
  uint64_t bytes() const { return bytes_; }
  std::vector<std::string> take_notes() { return std::move(notes_); }
  // Of a directory that has what could be fetched. `writer`: of the last claim from there.
  RunId run_id(const std::string& writer) const {
    return {.run = index().run, .writer = writer, .passed_over = passed_over_};
  }

  // Whether the copy is still as it was when its index was read.
  Result<bool> is_current();

  Status fetch(const CopiedFile& file, const std::string& path);
  // Into memory.
  Result<std::string> read(const CopiedFile& file);
  // The last rollback that the copy knows of; of roster 0 if it knows of none.
  Result<ckpt::SnapshotStore::Rollback> rollback();
  // Into DIRECTORY/checkpoints; whole, or not at all. Fine if it is there.
  Status fetch(const CopiedCheckpoint& checkpoint, const std::string& directory);
  // The newest one that is whole and after `after`, and the best one.
  Result<std::optional<int64_t>> fetch_checkpoints(const std::string& directory, int64_t after);

 private:
  // The bytes of a file, in parts.
  Status read_parts(const CopiedFile& file,
                    const std::function<Status(std::span<const std::byte> part)>& take);
  // False: it is damaged, and told in the notes.
  Result<bool> try_fetch(const CopiedCheckpoint& checkpoint, const std::string& directory);

  store::Store& store_;
  FileSystem& files_;
  const std::string to_;
  const StoredIndex stored_;
  const Callbacks callbacks_;
  uint64_t bytes_ = 0;
  int64_t passed_over_ = -1;
  std::vector<std::string> notes_;
};

}  // namespace muster::copy
