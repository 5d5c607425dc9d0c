#include "muster/store/local_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <random>

#include "muster/base/fd.h"
#include "muster/base/file_system.h"
#include "muster/store/glob.h"
#include "muster/store/url.h"
#include "muster/store/walk.h"

namespace muster::store {
namespace {

// What waiting can mend is kIo: a full table of descriptors, a disk or server that fails.
Error file_error(int code, const std::string& path, std::string_view doing) {
  switch (code) {
    case ENOENT:
    case ENOTDIR:
      return Error(ErrorKind::kData, "there is no file '{}'", path);
    case EACCES:
    case EPERM:
      return Error(ErrorKind::kData, "'{}' may not be read by this user: check its permissions",
                   path);
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL:
      return Error(ErrorKind::kData, "{}",
                   io_error(code, fmt::format("cannot {} '{}'", doing, path)).message());
    default:
      return io_error(code, fmt::format("cannot {} '{}'", doing, path));
  }
}

std::string version_of(const struct stat& s) {
  return fmt::format("{}.{:09}-{}-{}", s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_ino, s.st_size);
}

Error changed(const std::string& path) {
  return Error(ErrorKind::kData,
               "'{}' was changed since it was listed: put its contents back and resume the run, "
               "which compares them, or {}",
               path, kUseNewData);
}

int open_retrying(const char* path, int flags) {
  int fd = -1;
  do fd = ::open(path, flags | O_CLOEXEC);  // NOLINT: open is variadic
  while (fd < 0 && errno == EINTR);
  return fd;
}

Result<std::vector<FolderEntry>> names_in(const std::string& base) {
  const std::string folder = base.empty() ? "." : base;
  std::vector<FolderEntry> entries;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder.c_str()), ::closedir);
  if (!dir) {
    if (errno == ENOENT || errno == ENOTDIR) return entries;
    return file_error(errno, folder, "list");
  }
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(dir.get());  // NOLINT(concurrency-mt-unsafe): own DIR
    if (entry == nullptr) break;
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    bool is_folder = entry->d_type == DT_DIR;
    if (entry->d_type == DT_UNKNOWN) {
      struct stat s{};
      is_folder = ::lstat((base + name).c_str(), &s) == 0 && S_ISDIR(s.st_mode);
    }
    entries.push_back({.name = std::move(name), .is_folder = is_folder, .object = {}});
  }
  if (errno != 0) return file_error(errno, folder, "list");
  return entries;
}

Object object_of(const std::string& path, const struct stat& s) {
  return {.name = path, .size = static_cast<uint64_t>(s.st_size), .version = version_of(s)};
}

// Only regular files; one that is gone by now, or a link to nothing, is left out.
Result<std::optional<Object>> regular_file(const std::string& path) {
  struct stat s{};
  if (::stat(path.c_str(), &s) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<Object>();
    return file_error(errno, path, "look at");
  }
  if (!S_ISREG(s.st_mode)) return std::optional<Object>();
  return std::optional(object_of(path, s));
}

Result<Object> look_at(const std::string& path) {
  struct stat s{};
  if (::stat(path.c_str(), &s) != 0) return file_error(errno, path, "look at");
  if (S_ISDIR(s.st_mode)) {
    return Error(ErrorKind::kData,
                 "'{0}' is a directory: write '{0}{1}*' for the files in it, or '{0}{1}**' for all "
                 "files below it",
                 path, path.ends_with('/') ? "" : "/");
  }
  if (!S_ISREG(s.st_mode)) {
    return Error(ErrorKind::kData, "'{}' is not a regular file, so parts of it cannot be read",
                 path);
  }
  return object_of(path, s);
}

Result<std::string> local_path(std::string_view address) {
  MUSTER_TRY(auto parsed, parse_address(address));
  if (parsed.scheme != Scheme::kFile) {
    return Error(ErrorKind::kInternal, "'{}' is not a local path", printable(address));
  }
  return std::move(parsed.path);
}

// For a name that no other process uses, on this machine or another one.
uint64_t random_bits() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Moves the file aside into its place. False: the condition does not hold.
Result<bool> move_into_place(FileSystem& fs, const std::string& aside, const std::string& path,
                             const WriteCondition& condition) {
  if (condition.kind == WriteCondition::Kind::kIfAbsent) {
    // Unlike rename, link fails if the name is taken.
    const bool taken = ::link(aside.c_str(), path.c_str()) != 0;
    const int code = errno;
    MUSTER_RETURN_IF_ERROR(fs.remove_all(aside));
    if (!taken) return true;
    if (code == EEXIST) return false;
    return file_error(code, path, "create");
  }
  Fd lock;
  if (condition.kind == WriteCondition::Kind::kIfVersion) {
    lock = Fd(open_retrying(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY));
    if (!lock) return file_error(errno, folder_of(path), "open");
    int locked = 0;
    do locked = ::flock(lock.get(), LOCK_EX);
    while (locked != 0 && errno == EINTR);
    if (locked != 0) return file_error(errno, folder_of(path), "lock");
    struct stat s{};
    const bool there = ::stat(path.c_str(), &s) == 0;
    if (!there && errno != ENOENT) return file_error(errno, path, "look at");
    if (!there || version_of(s) != condition.version) {
      MUSTER_RETURN_IF_ERROR(fs.remove_all(aside));
      return false;
    }
  }
  MUSTER_RETURN_IF_ERROR(fs.rename(aside, path));
  return true;
}

}  // namespace

Result<std::vector<Object>> LocalStore::list(std::string_view address) {
  return list_stoppable(address, {});
}

Result<std::vector<Object>> LocalStore::list_stoppable(std::string_view address,
                                                       const std::stop_token& stop) {
  return list_in_requests(address, make_once, stop);
}

Result<std::vector<Object>> LocalStore::list_in_requests(std::string_view address,
                                                         const MakeRequest& make,
                                                         const std::stop_token& stop) {
  MUSTER_TRY(const auto path, local_path(address));
  if (!has_wildcard(path)) {
    MUSTER_TRY(auto object, answer_of(make, [&] { return look_at(path); }));
    return std::vector<Object>{std::move(object)};
  }
  MUSTER_TRY(const auto glob, Glob::parse(path));
  return walk(glob, {.list_folder = names_in, .look_at = regular_file}, make, stop);
}

Status LocalStore::read(const Object& object, uint64_t offset, std::span<std::byte> into) {
  MUSTER_TRY(const auto path, local_path(object.name));
  const Fd fd(open_retrying(path.c_str(), O_RDONLY));
  if (!fd) return file_error(errno, path, "open");
  size_t got = 0;
  while (got < into.size()) {
    const ssize_t n =
        ::pread(fd.get(), into.data() + got, into.size() - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(errno, path, "read");
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  struct stat s{};
  if (::fstat(fd.get(), &s) != 0) return file_error(errno, path, "look at");
  if (!object.version.empty() && version_of(s) != object.version) return changed(path);
  if (got < into.size()) {
    return Error(ErrorKind::kData, "'{}' ends at byte {}, but {} bytes from {} were asked for",
                 path, s.st_size, into.size(), offset);
  }
  return {};
}

Result<std::optional<std::string>> LocalStore::write(std::string_view address,
                                                     std::span<const std::byte> bytes,
                                                     const WriteCondition& condition) {
  MUSTER_TRY(const auto path, local_path(address));
  const auto fs = posix_file_system();
  MUSTER_RETURN_IF_ERROR(fs->create_directories(folder_of(path)));
  const std::string aside = fmt::format("{}.{:016x}.new", path, random_bits());
  Fd made;
  const auto written = [&]() -> Result<bool> {
    MUSTER_TRY(const auto file, fs->create(aside));
    MUSTER_RETURN_IF_ERROR(file->append(bytes));
    MUSTER_RETURN_IF_ERROR(file->sync());
    MUSTER_RETURN_IF_ERROR(file->close());
    made = Fd(open_retrying(aside.c_str(), O_RDONLY));
    if (!made) return file_error(errno, aside, "open");
    return move_into_place(*fs, aside, path, condition);
  }();
  if (!written.ok()) {
    (void)fs->remove_all(aside).ok();
    return written.error();
  }
  if (!*written) return std::optional<std::string>();
  MUSTER_RETURN_IF_ERROR(fs->sync_directory(folder_of(path)));
  struct stat s{};
  if (::fstat(made.get(), &s) != 0) return file_error(errno, path, "look at");
  return std::optional(version_of(s));
}

Status LocalStore::remove(std::string_view address) {
  MUSTER_TRY(const auto path, local_path(address));
  if (::unlink(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) {
    return file_error(errno, path, "remove");
  }
  // S3 has no directories: one that nothing is left in is not left behind either.
  std::string folder = folder_of(path);
  while (folder != "." && folder != "/" && ::rmdir(folder.c_str()) == 0) {
    folder = folder_of(folder);
  }
  return {};
}

}  // namespace muster::store
