// The disk, behind one interface, so that tests can make it full, slow or torn.
//
// Everything that must survive a crash (checkpoints, manifests, run directories) is written through
// here. Reading bulk data does not need it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"

namespace muster {

// A file being written. Not safe for concurrent use. Destroying it without close() drops it: what
// is on the disk then is undefined.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual Status append(std::span<const std::byte> data) = 0;
  // Returns once everything appended is on stable storage.
  virtual Status sync() = 0;
  virtual Status close() = 0;

  Status append(std::string_view text) { return append(std::as_bytes(std::span(text))); }
};

// Safe for concurrent use. Paths are as the operating system takes them.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Creates or truncates.
  virtual Result<std::unique_ptr<WritableFile>> create(const std::string& path) = 0;
  // Creates, or goes on at the end of what is there.
  virtual Result<std::unique_ptr<WritableFile>> open_to_append(const std::string& path) = 0;
  virtual Result<std::string> read(const std::string& path) = 0;
  // The last `most` bytes, or all of them if they are fewer. Where nothing better is known, all is
  // read and cut.
  virtual Result<std::string> read_end(const std::string& path, size_t most);
  // Like read(), and calls `progress` whenever a part has been read: a file may be large and the
  // disk slow, and a caller wants to tell that from one that hangs. Where nothing better is known,
  // once.
  virtual Result<std::string> read_in_parts(const std::string& path,
                                            const std::function<void()>& progress);
  // Replaces `to` if it is there; atomic, also for a crash, once sync_directory(parent) has
  // returned.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status sync_directory(const std::string& path) = 0;
  // Also the parents; fine if it is there.
  virtual Status create_directories(const std::string& path) = 0;
  // One directory whose parent is there. False if something of that name was there already: of
  // several callers that race for a name, one gets true.
  virtual Result<bool> create_directory(const std::string& path) = 0;
  // A symbolic link at `path`, where nothing may be yet, to `target`, taken as it is written.
  virtual Status create_symlink(const std::string& target, const std::string& path) = 0;
  // A file or a whole directory; fine if there is none.
  virtual Status remove_all(const std::string& path) = 0;
  // Names, not paths, sorted. Empty if there is no such directory.
  virtual Result<std::vector<std::string>> list(const std::string& path) = 0;
  virtual bool exists(const std::string& path) = 0;
};

// The real one. Its errors name the path and, for a full disk or missing rights, what to do.
std::unique_ptr<FileSystem> posix_file_system();

// Replaces `path` so that a reader, or a crash, sees either the old file or the whole new one.
// `write` writes and syncs a file beside it, whose name no other process uses: an error takes it
// away again, a crash may leave it behind.
Status replace_file(FileSystem& fs, const std::string& path,
                    const std::function<Status(const std::string& aside)>& write);
Status write_file_atomically(FileSystem& fs, const std::string& path, std::string_view contents);

}  // namespace muster
