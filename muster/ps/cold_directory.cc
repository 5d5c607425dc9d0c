#include "muster/ps/cold_directory.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

namespace muster::ps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".rows";
constexpr const char* kLock = "in_use";

// As long as it is held, nobody else makes or removes directories in `parent`.
Fd lock_parent(const std::string& parent) {
  Fd lock(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock && ::flock(lock.get(), LOCK_EX) != 0) lock.reset();
  return lock;
}

// One without a lock is not ours.
bool is_abandoned(const fs::path& directory) {
  if (directory.extension() != kEnding) return false;
  const Fd lock(::open((directory / kLock).c_str(), O_RDWR | O_CLOEXEC));
  return lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
}

// The lock goes last: if this is interrupted, it is still known as ours.
void remove_directory(const fs::path& directory) {
  std::error_code ignored;
  for (fs::directory_iterator at(directory, ignored), end; at != end; at.increment(ignored)) {
    if (at->path().filename() != kLock) fs::remove_all(at->path(), ignored);
  }
  fs::remove_all(directory, ignored);
}

void remove_abandoned_locked(const std::string& parent) {
  std::error_code ignored;
  for (fs::directory_iterator at(parent, ignored), end; at != end; at.increment(ignored)) {
    if (is_abandoned(at->path())) remove_directory(at->path());
  }
}

}  // namespace

void remove_abandoned(const std::string& parent) {
  if (const Fd lock = lock_parent(parent)) remove_abandoned_locked(parent);
}

Result<ColdDirectory> ColdDirectory::make(const std::string& parent, const std::string& name) {
  const auto failed = [&](int error) {
    return io_error(error, fmt::format("tables.disk: '{}' cannot be used for rows", parent));
  };
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) return failed(error.value());
  const Fd others = lock_parent(parent);
  if (!others) return failed(errno);
  remove_abandoned_locked(parent);
  const fs::path path = fs::path(parent) / (name + kEnding);
  if (!fs::create_directory(path, error)) return failed(error ? error.value() : EEXIST);
  Fd lock(::open((path / kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return failed(errno);
  return ColdDirectory(path.string(), std::move(lock));
}

ColdDirectory::~ColdDirectory() {
  if (!path_.empty()) remove_directory(path_);
}

}  // namespace muster::ps
