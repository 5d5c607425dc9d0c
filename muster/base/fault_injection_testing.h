// A file system in memory that can be broken, for tests of anything that promises to survive a
// crash or a full disk.
//
// It keeps what a real disk keeps: for each file what was written and what was synced, for each
// directory the names it has and the names that sync_directory made durable. A test runs some code
// once to count its operations, then again for every n with a fault at operation n, then
// restart()s and looks at what is left:
//
//   FaultInjectionFileSystem fs;
//   fs.fail_at(n, Fault::kCrash);
//   (void)code(fs);
//   fs.restart(CrashLoss::kUnsynced);
//   EXPECT_TRUE(sound(fs));
//
// Operations are those that change something: create, append, sync, close, rename, sync_directory,
// create_directories, create_directory, create_symlink, remove_all. Paths are compared as text, so
// a test should spell each in one way. Safe for concurrent use.
#pragma once

#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/file_system.h"

namespace muster {

enum class Fault {
  kCrash,     // this operation is half done or not at all, and nothing works until restart()
  kOnce,      // this operation fails (EIO), later ones work
  kDiskFull,  // from here on nothing that needs space works (ENOSPC); removing does
};

// What a crash takes away.
enum class CrashLoss {
  kNothing,   // the process died, the kernel lives: all that was written is there
  kUnsynced,  // the power went: exactly the synced is left
  kSome,      // the power went: some of the unsynced is left, by chance, and its tail may be zeros
};

class FaultInjectionFileSystem final : public FileSystem {
 public:
  FaultInjectionFileSystem() : root_(std::make_shared<Node>()) { root_->directory = true; }

  // The fault comes at the operation of this number, counted from 0 at the last restart().
  void fail_at(int64_t operation, Fault fault) {
    const std::lock_guard lock(mutex_);
    fault_at_ = operation;
    fault_ = fault;
  }
  int64_t operations() const {
    const std::lock_guard lock(mutex_);
    return operations_;
  }
  // The world after the crash (or, with kNothing, just without faults).
  void restart(CrashLoss loss, uint64_t seed = 0) {
    const std::lock_guard lock(mutex_);
    std::mt19937_64 random(seed);
    settle(*root_, loss, random);
    operations_ = 0;
    fault_at_ = -1;
    crashed_ = false;
  }
  // The bytes of a file, to flip or cut. The file must be there.
  std::string& contents(const std::string& path) {
    const std::lock_guard lock(mutex_);
    const auto node = find(path);
    MUSTER_CHECK(node && !node->directory, "no such file in this test");
    return node->data;
  }

  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    MUSTER_RETURN_IF_ERROR(operation("create", path, true));
    MUSTER_TRY(auto node, make(path, false));
    node->data.clear();
    return open(std::move(node), path);
  }

  Result<std::unique_ptr<WritableFile>> open_to_append(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    MUSTER_RETURN_IF_ERROR(operation("create", path, true));
    MUSTER_TRY(auto node, make(path, false));
    return open(std::move(node), path);
  }

  Result<std::string> read(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    const auto node = find(path);
    if (!node || node->directory) return io_error(ENOENT, fmt::format("cannot open '{}'", path));
    return node->data;
  }

  Status rename(const std::string& from, const std::string& to) override {
    const std::lock_guard lock(mutex_);
    MUSTER_RETURN_IF_ERROR(operation("rename to", to, false));
    const auto node = find(from);
    const auto target = find(to);
    const auto from_parent = find(parent(from));
    const auto to_parent = find(parent(to));
    if (!node || !to_parent) return io_error(ENOENT, fmt::format("cannot rename to '{}'", to));
    if (target && target->directory && !target->names.empty()) {
      return io_error(ENOTEMPTY, fmt::format("cannot rename to '{}'", to));
    }
    // Within one directory a rename is one change: a crash never sees half of it.
    from_parent->names.erase(name(from));
    to_parent->names[name(to)] = node;
    from_parent->remember();
    if (to_parent != from_parent) to_parent->remember();
    return {};
  }

  Status sync_directory(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    MUSTER_RETURN_IF_ERROR(operation("sync", path, false));
    const auto node = find(path);
    if (!node || !node->directory) return io_error(ENOENT, fmt::format("cannot sync '{}'", path));
    node->history = {node->names};
    return {};
  }

  Status create_directories(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    MUSTER_RETURN_IF_ERROR(operation("create the directory", path, true));
    std::string so_far;
    for (const auto& part : std::filesystem::path(path)) {
      so_far = (std::filesystem::path(so_far) / part).string();
      MUSTER_TRY(const auto node, make(so_far, true));
      (void)node;
    }
    return {};
  }

  Result<bool> create_directory(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    MUSTER_RETURN_IF_ERROR(operation("create the directory", path, true));
    if (find(path)) return false;
    MUSTER_TRY(const auto node, make(path, true));
    (void)node;
    return true;
  }

  // A link is a file that holds its target; nothing here follows it.
  Status create_symlink(const std::string& target, const std::string& path) override {
    const std::lock_guard lock(mutex_);
    MUSTER_RETURN_IF_ERROR(operation("create", path, true));
    if (find(path)) return io_error(EEXIST, fmt::format("cannot create '{}'", path));
    MUSTER_TRY(auto node, make(path, false));
    node->data = node->synced = target;
    return {};
  }

  Status remove_all(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    MUSTER_RETURN_IF_ERROR(operation("remove", path, false));
    if (const auto up = find(parent(path)); up && up->names.erase(name(path)) > 0) up->remember();
    return {};
  }

  Result<std::vector<std::string>> list(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    if (const auto node = find(path)) {
      for (const auto& [entry, child] : node->names) names.push_back(entry);
    }
    return names;
  }

  bool exists(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    return find(path) != nullptr;
  }

 private:
  struct Node;
  using Names = std::map<std::string, std::shared_ptr<Node>>;

  struct Node {
    bool directory = false;
    std::string data;
    std::string synced;
    Names names;
    // A directory's names as they were made durable, then after each change since.
    std::vector<Names> history = {{}};
    void remember() { history.push_back(names); }
  };

  class File final : public WritableFile {
   public:
    File(FaultInjectionFileSystem& fs, std::shared_ptr<Node> node, std::string path)
        : fs_(fs), node_(std::move(node)), path_(std::move(path)) {}
    Status append(std::span<const std::byte> data) override {
      const std::lock_guard lock(fs_.mutex_);
      const auto* bytes = reinterpret_cast<const char*>(data.data());
      const Status status = fs_.operation("write", path_, true);
      // A write that fails has often written something.
      node_->data.append(bytes, status.ok() ? data.size() : data.size() / 2);
      return status;
    }
    Status sync() override {
      const std::lock_guard lock(fs_.mutex_);
      MUSTER_RETURN_IF_ERROR(fs_.operation("sync", path_, true));
      node_->synced = node_->data;
      return {};
    }
    Status close() override {
      const std::lock_guard lock(fs_.mutex_);
      return fs_.operation("close", path_, false);
    }

   private:
    FaultInjectionFileSystem& fs_;
    std::shared_ptr<Node> node_;
    std::string path_;
  };

  static std::string parent(const std::string& path) {
    return std::filesystem::path(path).parent_path().string();
  }
  static std::string name(const std::string& path) {
    return std::filesystem::path(path).filename().string();
  }

  std::unique_ptr<WritableFile> open(std::shared_ptr<Node> node, const std::string& path) {
    return std::make_unique<File>(*this, std::move(node), path);
  }

  // Counts one operation and says whether it fails.
  Status operation(std::string_view doing, const std::string& path, bool needs_space) {
    const int64_t number = operations_++;
    const bool reached = fault_at_ >= 0 && number >= fault_at_;
    if (reached && fault_ == Fault::kCrash) crashed_ = true;
    if (crashed_) return Error(ErrorKind::kIo, "cannot {} '{}': crashed by the test", doing, path);
    if (reached && fault_ == Fault::kDiskFull && needs_space) {
      return io_error(ENOSPC, fmt::format("cannot {} '{}'", doing, path));
    }
    if (number == fault_at_ && fault_ == Fault::kOnce) {
      return io_error(EIO, fmt::format("cannot {} '{}'", doing, path));
    }
    return {};
  }

  std::shared_ptr<Node> find(const std::string& path) const {
    std::shared_ptr<Node> node = root_;
    for (const auto& part : std::filesystem::path(path)) {
      if (part == "/" || part == "." || part.empty()) continue;
      const auto found = node->names.find(part.string());
      if (found == node->names.end()) return nullptr;
      node = found->second;
    }
    return node;
  }

  Result<std::shared_ptr<Node>> make(const std::string& path, bool directory) {
    if (auto node = find(path)) {
      if (node->directory == directory) return node;
      return io_error(EISDIR, fmt::format("cannot create '{}'", path));
    }
    const auto up = find(parent(path));
    if (!up) return io_error(ENOENT, fmt::format("cannot create '{}'", path));
    auto node = std::make_shared<Node>();
    node->directory = directory;
    up->names[name(path)] = node;
    up->remember();
    return node;
  }

  static void settle(Node& node, CrashLoss loss, std::mt19937_64& random) {
    if (loss == CrashLoss::kUnsynced) {
      node.data = node.synced;
      node.names = node.history.front();
    } else if (loss == CrashLoss::kSome) {
      if (node.data != node.synced) {
        const size_t safe = node.data.starts_with(node.synced) ? node.synced.size() : 0;
        const size_t kept = safe + random() % (node.data.size() - safe + 1);
        const size_t zeros = random() % (node.data.size() - kept + 1);
        node.data = node.data.substr(0, kept) + std::string(zeros, '\0');
      }
      node.names = node.history[random() % node.history.size()];
    }
    node.synced = node.data;
    node.history = {node.names};
    for (const auto& [entry, child] : node.names) settle(*child, loss, random);
  }

  mutable std::mutex mutex_;
  std::shared_ptr<Node> root_;  // this and all below: guarded by mutex_
  int64_t operations_ = 0;
  int64_t fault_at_ = -1;
  Fault fault_ = Fault::kOnce;
  bool crashed_ = false;
};

}  // namespace muster
