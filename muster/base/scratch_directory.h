// A directory for temporary files, in TMPDIR or /tmp, that is gone with its owner.
#pragma once

#include <string>
#include <utility>

#include "muster/base/result.h"

namespace muster {

class ScratchDirectory {
 public:
  // Named PREFIX-XXXXXX. If TMPDIR is no directory: in `otherwise`, or an error if that is empty.
  static Result<ScratchDirectory> make(const std::string& prefix,
                                       const std::string& otherwise = "");
  // In this directory.
  static Result<ScratchDirectory> make_in(const std::string& place, const std::string& prefix);
  ScratchDirectory(ScratchDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchDirectory& operator=(ScratchDirectory&&) = delete;
  // With all that is in it.
  ~ScratchDirectory();

  const std::string& path() const { return path_; }
  // It stays; returns its path. This object has none any more.
  std::string release() { return std::exchange(path_, {}); }

 private:
  explicit ScratchDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty: none
};

}  // namespace muster
