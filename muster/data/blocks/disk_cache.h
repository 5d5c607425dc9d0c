// Blocks on the disk of this machine, so that a later pass, or another run, need not fetch them
// again.
//
// It fills up and keeps: within a job nothing is evicted. Each pass uses each block once, so a hit
// in the next pass must have been kept across the border between them, and then any fixed set is as
// good as the best policy; the least recently used one, which is what others evict, is exactly the
// one that is needed next.
//
// Files are named by hash, and end with a hash of their contents, which is checked on every read.
// They may be deleted at any time, all or some, also while a job runs; several workers and jobs may
// share a directory. Nothing is synced: what a crash leaves torn is noticed by its hash, removed
// and fetched again. No error of the disk fails a job: the cache then holds less.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "muster/base/file_system.h"
#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/data/blocks/block_index.h"

namespace muster::data {

// Safe for concurrent use.
class DiskCache {
 public:
  static constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

  // Makes the directory if it is not there. Counts what it holds: with what this process adds it
  // stays within `capacity` bytes (each process that shares the directory counts for itself). The
  // file system must outlive it.
  static Result<std::unique_ptr<DiskCache>> open(FileSystem& fs, std::string directory,
                                                 uint64_t capacity = kUnlimited);

  // What a block is known by: its hash, or where it is from, as long as no hash is known.
  static Hash128 key_of(const BlockIndex& index, size_t block);

  // The bytes, or nothing if they are not here.
  std::optional<std::string> read(const Hash128& key, uint64_t length);
  // Keeps them if there is room.
  void write(const Hash128& key, std::string_view bytes);

  struct Counters {
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t damaged = 0;  // of the misses: were here, and were removed
    uint64_t bytes = 0;    // held, as far as this process knows
  };
  Counters counters() const;
  // Why it keeps nothing more ("" if it does), for the log: the disk is full, for example.
  std::string problem() const;

 private:
  DiskCache(FileSystem& fs, std::string directory, uint64_t capacity, uint64_t held)
      : fs_(fs), directory_(std::move(directory)), capacity_(capacity), bytes_(held) {}
  std::string folder_of(const Hash128& key) const;
  std::string path_of(const Hash128& key) const;
  Status write_file(const Hash128& key, std::string_view bytes);

  FileSystem& fs_;
  const std::string directory_;
  const uint64_t capacity_;
  std::atomic<uint64_t> bytes_;
  std::atomic<uint64_t> hits_ = 0;
  std::atomic<uint64_t> misses_ = 0;
  std::atomic<uint64_t> damaged_ = 0;
  std::atomic<uint64_t> named_ = 0;  // temporary names given out
  std::atomic<bool> full_ = false;
  mutable std::mutex mutex_;
  std::string problem_;  // guarded by mutex_
};

}  // namespace muster::data
