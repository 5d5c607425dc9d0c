#include "muster/track/run_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace muster::track {
namespace {

using nlohmann::json;

// Letters, digits, '.', '_' and '-' as they are, anything else '-'; never hidden, never long.
std::string file_name_of(std::string_view job_name) {
  std::string name(job_name.substr(0, 100));
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    if (!plain) c = '-';
  }
  if (name.empty()) name = "job";
  if (name.front() == '.') name.front() = '-';
  return name;
}

// Atomically, so that a reader never finds it missing. The link's text is relative, so that the
// folder of runs can be moved.
void point_latest_to(FileSystem& fs, const std::string& root, const std::string& name) {
  const std::string aside = fmt::format("{}/.latest-{}", root, name);
  if (fs.create_symlink(name, aside).ok() && !fs.rename(aside, root + "/latest").ok()) {
    (void)fs.remove_all(aside);
  }
}

std::optional<json> read_object(FileSystem& fs, const std::string& path) {
  if (!fs.exists(path)) return std::nullopt;
  const auto text = fs.read(path);
  if (!text.ok()) return std::nullopt;
  json object = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  return object;
}

std::string text_or_empty(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string encode(const json& object) {
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

// Locks belong to the open file, not to the process (F_OFD_...): closing another descriptor of the
// same file does not drop them, two objects in one process exclude each other, and unlike flock()
// one can ask who holds it without taking it.
struct flock whole_file(short type) {
  struct flock lock;
  std::memset(&lock, 0, sizeof(lock));
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

std::string_view run_state_name(RunState state) {
  switch (state) {
    case RunState::kUnknown:
      return "unknown";
    case RunState::kRunning:
      return "running";
    case RunState::kFinished:
      return "finished";
    case RunState::kFailed:
      return "failed";
    case RunState::kInterrupted:
      return "interrupted";
    case RunState::kDied:
      return "died";
  }
  return "unknown";
}

RunLock::RunLock(RunLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

RunLock::~RunLock() {
  if (fd_ >= 0) ::close(fd_);
}

Result<RunLock> RunLock::acquire(const std::string& lock_file, const std::string& run_path) {
  const int fd = ::open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return io_error(errno, fmt::format("cannot open '{}'", lock_file));
  RunLock held(fd);
  struct flock lock = whole_file(F_WRLCK);
  if (::fcntl(fd, F_OFD_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES) {
      return io_error(errno, fmt::format("cannot lock '{}'", lock_file));
    }
    return Error(ErrorKind::kUsage,
                 "another process is training in '{}'; wait for it or stop it first", run_path);
  }
  return held;
}

bool RunLock::is_held(const std::string& lock_file) {
  const int fd = ::open(lock_file.c_str(), O_RDONLY | O_CLOEXEC);  // also of runs that are not ours
  if (fd < 0) return false;
  struct flock lock = whole_file(F_WRLCK);
  const bool held = ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  ::close(fd);
  return held;
}

Result<RunDirectory> RunDirectory::create(FileSystem& fs, const std::string& root,
                                          std::string_view job_name, const Clock& clock) {
  MUSTER_RETURN_IF_ERROR(fs.create_directories(root));
  const std::string base =
      fmt::format("{}-{}", file_name_of(job_name), utc_timestamp(clock.wall(), true));
  for (int i = 1; i <= 1000; ++i) {
    const std::string name = i == 1 ? base : fmt::format("{}-{}", base, i);
    const std::string path = fmt::format("{}/{}", root, name);
    MUSTER_TRY(const bool ours, fs.create_directory(path));
    if (!ours) continue;
    MUSTER_RETURN_IF_ERROR(fs.sync_directory(root));
    point_latest_to(fs, root, name);
    return RunDirectory(fs, path);
  }
  return Error(ErrorKind::kIo, "a thousand runs called '{}' are in '{}' already; try again", base,
               root);
}

Result<RunDirectory> RunDirectory::open(FileSystem& fs, const std::string& path) {
  std::string plain = path;
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  RunDirectory run(fs, std::move(plain));
  if (!fs.exists(run.job_file())) {
    return Error(
        ErrorKind::kUsage,
        "'{}' is not a run directory: it has no job.yaml; 'muster runs list' shows the runs", path);
  }
  return run;
}

Status RunDirectory::write_job(std::string_view yaml) const {
  return write_file_atomically(*fs_, job_file(), yaml);
}

Status RunDirectory::write_result(const json& result) const {
  return write_file_atomically(*fs_, result_file(), encode(result));
}

Status RunDirectory::write_status(RunState state, std::string_view reason, int64_t step,
                                  const Clock& clock) const {
  const std::string now = utc_timestamp(clock.wall());
  const std::string before = read_status().started;
  return write_file_atomically(*fs_, status_file(),
                               encode({{"state", run_state_name(state)},
                                       {"reason", reason},
                                       {"started", before.empty() ? now : before},
                                       {"updated", now},
                                       {"pid", ::getpid()},
                                       {"step", step}}));
}

RunStatus RunDirectory::read_status() const {
  RunStatus status;
  const auto object = read_object(*fs_, status_file());
  if (!object) return status;
  const std::string name = text_or_empty(*object, "state");
  for (const auto state :
       {RunState::kRunning, RunState::kFinished, RunState::kFailed, RunState::kInterrupted}) {
    if (name == run_state_name(state)) status.state = state;
  }
  if (status.state == RunState::kRunning && !RunLock::is_held(lock_file())) {
    status.state = RunState::kDied;
  }
  status.reason = text_or_empty(*object, "reason");
  status.started = text_or_empty(*object, "started");
  status.updated = text_or_empty(*object, "updated");
  if (const auto step = object->find("step"); step != object->end() && step->is_number_integer()) {
    status.step = step->get<int64_t>();
  }
  return status;
}

std::optional<json> RunDirectory::read_result() const { return read_object(*fs_, result_file()); }

Result<std::vector<RunSummary>> list_runs(FileSystem& fs, const std::string& root) {
  MUSTER_TRY(const auto names, fs.list(root));
  std::vector<RunSummary> runs;
  for (const auto& name : names) {
    if (name == "latest" || name.starts_with(".")) continue;
    const auto run = RunDirectory::open(fs, fmt::format("{}/{}", root, name));
    if (!run.ok()) continue;
    runs.push_back({name, run->path(), run->read_status(), run->read_result().value_or(json())});
  }
  // Names carry the time, but begin with the job.
  std::sort(runs.begin(), runs.end(), [](const RunSummary& a, const RunSummary& b) {
    return std::tie(a.status.started, a.name) < std::tie(b.status.started, b.name);
  });
  return runs;
}

}  // namespace muster::track
