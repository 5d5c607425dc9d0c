// Blocks on the disk of this machine, so that a later pass, or another run, need not fetch them
// again.
//
// It fills up and keeps: within a job nothing is evicted. Each pass uses each block once, so a hit
// in the next pass must have been kept across the border between them, and then any fixed set is as
// good as the best policy; the least recently used one, which is what others evict, is exactly the
// one that is needed next.
//
// Files are named by hash, and end with a hash of their contents, which is checked on every read.
// They may be deleted at any time, all or some, also while a job runs. Nothing is synced: what a
// crash leaves torn is noticed by its hash, removed and fetched again. No error of the disk fails a
// job, a directory that cannot be made included: the cache then holds less, and tries again after a
// while.
//
// The capacity is that of the directory, which training data, test data, workers and jobs may
// share. None tells another what it writes. Each looks at the directory again when it has added a
// sixteenth of the room that it saw, and before it writes if its last look is a minute old. So
// several that fill a directory at the same time exceed the capacity by little, if at all.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "muster/base/clock.h"
#include "muster/base/file_system.h"
#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/data/blocks/block_index.h"

namespace muster::data {

// Safe for concurrent use.
class DiskCache {
 public:
  static constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
  // How long what was seen in the directory counts. A cache that was full, or whose disk failed,
  // does not look again before.
  static constexpr Duration kPause = std::chrono::minutes(1);

  // Makes the directory if it is not there, and counts what it holds; keeps it within `capacity`
  // bytes. If it cannot be made, problem() says so. The file system must outlive it.
  static std::unique_ptr<DiskCache> open(FileSystem& fs, std::string directory,
                                         uint64_t capacity = kUnlimited, Duration pause = kPause);

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
  // The last error of the disk, for the log, if nothing was written since; else "".
  std::string problem() const;

 private:
  DiskCache(FileSystem& fs, std::string directory, uint64_t capacity, Duration pause);
  std::string folder_of(const Hash128& key) const;
  std::string path_of(const Hash128& key) const;
  Status write_file(const Hash128& key, std::string_view bytes);
  // Whether a file of this size may be written now.
  bool reserve(uint64_t size);
  void end_write(uint64_t size, const Status& status);
  // Keeps nothing for a while. With mutex_ held.
  void note_failure(const Error& error);

  FileSystem& fs_;
  const std::string directory_;
  const uint64_t capacity_;
  const Duration pause_;
  std::atomic<uint64_t> hits_ = 0;
  std::atomic<uint64_t> misses_ = 0;
  std::atomic<uint64_t> damaged_ = 0;
  std::atomic<uint64_t> named_ = 0;  // temporary names given out
  mutable std::mutex mutex_;         // of what follows
  uint64_t bytes_ = 0;               // held, with those that are being written
  uint64_t writing_ = 0;             // of these
  uint64_t spare_ = 0;               // may be added before it looks again
  bool full_ = false;                // there was no room, or the disk failed
  Moment looked_;                    // when it last did
  std::string problem_;
};

}  // namespace muster::data
