#include "muster/base/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "muster/base/fault_point.h"

namespace muster {
namespace {

namespace stdfs = std::filesystem;

Error file_error(int errno_value, std::string_view doing, const std::string& path) {
  Error error = io_error(errno_value, fmt::format("cannot {} '{}'", doing, path));
  if (errno_value == ENOSPC || errno_value == EDQUOT) {
    return Error(ErrorKind::kIo, "{}; free some space or choose another directory",
                 error.message());
  }
  if (errno_value == EACCES || errno_value == EPERM || errno_value == EROFS) {
    return Error(ErrorKind::kIo, "{}; check who owns it, or choose another directory",
                 error.message());
  }
  return error;
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(int fd, std::string path, bool created)
      : fd_(fd), path_(std::move(path)), created_(created) {}
  ~PosixWritableFile() override {
    if (fd_ >= 0) ::close(fd_);
  }

  Status append(std::span<const std::byte> data) override {
    if (created_) slow_disk_point();
    while (!data.empty()) {
      const ssize_t written = ::write(fd_, data.data(), data.size());
      if (written < 0) {
        if (errno == EINTR) continue;
        return file_error(errno, "write", path_);
      }
      data = data.subspan(static_cast<size_t>(written));
    }
    return {};
  }

  Status sync() override {
    if (::fdatasync(fd_) != 0) return file_error(errno, "sync", path_);
    return {};
  }

  Status close() override {
    if (::close(std::exchange(fd_, -1)) != 0) return file_error(errno, "close", path_);
    return {};
  }

 private:
  int fd_;
  std::string path_;
  bool created_;
};

// From where it stands. `size`: a guess of how much that is.
constexpr size_t kReadPart = 8 << 20;

// `progress`: called after each part that was read; may be empty.
Result<std::string> read_to_end(int fd, const std::string& path, size_t size,
                                const std::function<void()>& progress = {}) {
  // One byte more lets a right guess see the end without growing.
  std::string contents(size + 1, '\0');
  size_t filled = 0;
  while (true) {
    if (filled == contents.size()) contents.resize(2 * filled);
    const size_t most = progress ? kReadPart : contents.size() - filled;
    const ssize_t got =
        ::read(fd, contents.data() + filled, std::min(most, contents.size() - filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error(errno, "read", path);
    if (got == 0) break;
    filled += static_cast<size_t>(got);
    if (progress) progress();
  }
  contents.resize(filled);
  return contents;
}

class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override {
    return open_to_write(path, O_TRUNC);
  }

  Result<std::unique_ptr<WritableFile>> open_to_append(const std::string& path) override {
    return open_to_write(path, O_APPEND);
  }

  Result<std::string> read(const std::string& path) override {
    return read_last(path, std::numeric_limits<size_t>::max(), {});
  }

  Result<std::string> read_in_parts(const std::string& path,
                                    const std::function<void()>& progress) override {
    return read_last(path, std::numeric_limits<size_t>::max(), progress);
  }

  Result<std::string> read_end(const std::string& path, size_t most) override {
    return read_last(path, most, {});
  }

  static Result<std::string> read_last(const std::string& path, size_t most,
                                       const std::function<void()>& progress) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return file_error(errno, "open", path);
    // Straight into the result: snapshots are large. The size is only a guess: a directory's is
    // nonsense, /proc says 0, and a file may be growing.
    struct stat info = {};
    const bool known = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0;
    size_t size = known ? static_cast<size_t>(info.st_size) : (1 << 16) - 1;
    if (known && size > most) {
      ::lseek(fd, static_cast<off_t>(size - most), SEEK_SET);
      size = most;
    }
    auto contents = read_to_end(fd, path, size, progress);
    ::close(fd);
    if (contents.ok() && contents->size() > most) contents->erase(0, contents->size() - most);
    return contents;
  }

  Status rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return file_error(errno, "rename to", to);
    return {};
  }

  Status sync_directory(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return file_error(errno, "open", path);
    const bool failed = ::fsync(fd) != 0;
    const int why = errno;
    ::close(fd);
    if (failed) return file_error(why, "sync", path);
    return {};
  }

  Status create_directories(const std::string& path) override {
    std::error_code ec;
    stdfs::create_directories(path, ec);
    if (ec) return file_error(ec.value(), "create the directory", path);
    return {};
  }

  Result<bool> create_directory(const std::string& path) override {
    if (::mkdir(path.c_str(), 0755) == 0) return true;
    if (errno == EEXIST) return false;
    return file_error(errno, "create the directory", path);
  }

  Status create_symlink(const std::string& target, const std::string& path) override {
    if (::symlink(target.c_str(), path.c_str()) != 0) return file_error(errno, "create", path);
    return {};
  }

  Status remove_all(const std::string& path) override {
    std::error_code ec;
    stdfs::remove_all(path, ec);
    if (ec) return file_error(ec.value(), "remove", path);
    return {};
  }

  Result<std::vector<std::string>> list(const std::string& path) override {
    std::vector<std::string> names;
    std::error_code ec;
    for (stdfs::directory_iterator it(path, ec), end; !ec && it != end; it.increment(ec)) {
      names.push_back(it->path().filename().string());
    }
    if (ec && ec != std::errc::no_such_file_or_directory) {
      return file_error(ec.value(), "list", path);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  bool exists(const std::string& path) override {
    std::error_code ec;
    return stdfs::exists(path, ec);
  }

 private:
  static Result<std::unique_ptr<WritableFile>> open_to_write(const std::string& path, int how) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, 0644);
    if (fd < 0) return file_error(errno, "create", path);
    return std::unique_ptr<WritableFile>(
        std::make_unique<PosixWritableFile>(fd, path, (how & O_TRUNC) != 0));
  }
};

// Drawn once, so that a process that is killed again and again while it writes leaves few files.
uint32_t process_tag() {
  static const uint32_t tag = std::random_device{}();
  return tag;
}

}  // namespace

Result<std::string> FileSystem::read_in_parts(const std::string& path,
                                              const std::function<void()>& progress) {
  auto contents = read(path);
  if (progress) progress();
  return contents;
}

Result<std::string> FileSystem::read_end(const std::string& path, size_t most) {
  MUSTER_TRY(auto contents, read(path));
  if (contents.size() > most) contents.erase(0, contents.size() - most);
  return contents;
}

std::unique_ptr<FileSystem> posix_file_system() { return std::make_unique<PosixFileSystem>(); }

Status replace_file(FileSystem& fs, const std::string& path,
                    const std::function<Status(const std::string& aside)>& write) {
  const std::string aside = fmt::format("{}.{:08x}.tmp", path, process_tag());
  Status status = write(aside);
  if (status.ok()) status = fs.rename(aside, path);
  if (!status.ok()) {
    (void)fs.remove_all(aside);  // the first error is the one to tell
    return status;
  }
  const auto parent = stdfs::path(path).parent_path().string();
  return fs.sync_directory(parent.empty() ? "." : parent);
}

Status write_file_atomically(FileSystem& fs, const std::string& path, std::string_view contents) {
  return replace_file(fs, path, [&](const std::string& aside) -> Status {
    MUSTER_TRY(auto file, fs.create(aside));
    MUSTER_RETURN_IF_ERROR(file->append(contents));
    MUSTER_RETURN_IF_ERROR(file->sync());
    return file->close();
  });
}

}  // namespace muster
