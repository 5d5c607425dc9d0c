// What children say on standard error, passed on to ours as it comes, and no longer than we want
// to.
//
// Somebody who presses Ctrl-C wants to be rid of all of it. A training that is stopped on the way
// may have something to say about how to go on with it, and that would be wrong: its folder is
// removed. So what is said goes into a file, and whoever reads it decides.
#pragma once

#include <sys/types.h>

#include <string>

#include "muster/base/result.h"

namespace muster::cli {

class StderrCapture {
 public:
  // In a new file at `path`, which stays.
  static Result<StderrCapture> open(const std::string& path);
  ~StderrCapture();
  StderrCapture(StderrCapture&& other) noexcept;
  StderrCapture& operator=(StderrCapture&&) = delete;

  int descriptor() const { return file_; }  // for those who speak
  std::string news();                       // what was said since the last time

 private:
  explicit StderrCapture(int file) : file_(file) {}
  int file_;
  off_t offset_ = 0;
};

}  // namespace muster::cli
