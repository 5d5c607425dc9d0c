// The directory in which one server keeps rows on disk, inside the one that a job names
// (tables.disk). It is gone with its owner.
//
// A server that is killed leaves its directory behind. Whoever makes another one, and the launcher
// at the end of a job, removes those that no process has locked. So several jobs may use one
// tables.disk.
#pragma once

#include <string>
#include <utility>

#include "muster/base/fd.h"
#include "muster/base/result.h"

namespace muster::ps {

class ColdDirectory {
 public:
  // Makes PARENT/NAME.rows, empty; PARENT too, if need be.
  static Result<ColdDirectory> make(const std::string& parent, const std::string& name);
  ColdDirectory(ColdDirectory&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}
  ColdDirectory& operator=(ColdDirectory&&) = delete;
  ~ColdDirectory();

  const std::string& path() const { return path_; }

 private:
  ColdDirectory(std::string path, Fd lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;  // empty: moved from
  Fd lock_;
};

// Those of processes that are gone.
void remove_abandoned(const std::string& parent);

}  // namespace muster::ps
