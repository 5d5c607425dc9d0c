// A file that collects what the workers of one slot write to standard error, one after the other.
#pragma once

#include <cstdint>
#include <string>

#include "muster/base/result.h"

namespace muster::launch {

// Open for a worker to append to. Closed when it goes; a worker that was spawned has its own.
class ErrorFile {
 public:
  static Result<ErrorFile> open(const std::string& path);
  ErrorFile(ErrorFile&& other) noexcept;
  ErrorFile& operator=(ErrorFile&&) = delete;
  ~ErrorFile();

  int fd() const { return fd_; }
  // How long it was when it was opened: what comes behind is of the worker started now.
  int64_t begin() const { return begin_; }

 private:
  ErrorFile(int fd, int64_t begin) : fd_(fd), begin_(begin) {}
  int fd_;
  int64_t begin_;
};

// The last lines of a file, at most `lines`, not from before `begin`. Empty if there are none. Only
// the last 64 KiB are looked at.
std::string last_lines(const std::string& path, int64_t begin, int lines);

}  // namespace muster::launch
