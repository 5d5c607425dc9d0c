// A file system that hands everything on to another one, for tests that change one thing about it:
// derive and override that.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/base/file_system.h"

namespace muster {

// `to` must outlive it.
class ForwardingFileSystem : public FileSystem {
 public:
  explicit ForwardingFileSystem(FileSystem& to) : to_(to) {}

  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override {
    return to_.create(path);
  }
  Result<std::unique_ptr<WritableFile>> open_to_append(const std::string& path) override {
    return to_.open_to_append(path);
  }
  Result<std::string> read(const std::string& path) override { return to_.read(path); }
  Result<std::string> read_in_parts(const std::string& path,
                                    const std::function<void()>& progress) override {
    return to_.read_in_parts(path, progress);
  }
  Result<std::string> read_end(const std::string& path, size_t most) override {
    return to_.read_end(path, most);
  }
  Status rename(const std::string& from, const std::string& to) override {
    return to_.rename(from, to);
  }
  Status sync_directory(const std::string& path) override { return to_.sync_directory(path); }
  Status create_directories(const std::string& path) override {
    return to_.create_directories(path);
  }
  Result<bool> create_directory(const std::string& path) override {
    return to_.create_directory(path);
  }
  Status create_symlink(const std::string& target, const std::string& path) override {
    return to_.create_symlink(target, path);
  }
  Status remove_all(const std::string& path) override { return to_.remove_all(path); }
  Result<std::vector<std::string>> list(const std::string& path) override { return to_.list(path); }
  bool exists(const std::string& path) override { return to_.exists(path); }

 private:
  FileSystem& to_;
};

}  // namespace muster
