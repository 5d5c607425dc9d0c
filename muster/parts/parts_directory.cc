#include "muster/parts/parts_directory.h"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/text.h"

namespace muster::parts {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;

// Bytes of `claims`.
constexpr int64_t kLauncher = 0;
constexpr int64_t kPlan = 1;
constexpr int64_t kFirstPart = 2;
constexpr int64_t kResult = int64_t{1} << 62;  // behind all parts

// Locks belong to the open file, not to the process (F_OFD_...): closing another descriptor of the
// same file does not drop them.
bool set_lock(int fd, int64_t byte, short type, bool wait) {
  struct flock lock;
  std::memset(&lock, 0, sizeof(lock));
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  int set = 0;
  do {
    set = ::fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
  } while (set != 0 && errno == EINTR);
  return set == 0;
}

std::string encode(const PartPlan& plan) {
  const json object = {{"version", kVersion},
                       {"facts", plan.facts},
                       {"header", plan.header},
                       {"borders", plan.borders}};
  return object.dump() + "\n";
}

std::optional<PartPlan> decode(const std::string& text) {
  const auto object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || object.value("version", json()) != kVersion) return std::nullopt;
  try {
    PartPlan plan{object.at("facts"), object.at("header").get<std::string>(),
                  object.at("borders").get<std::vector<uint64_t>>()};
    const auto& borders = plan.borders;
    const bool grows = std::ranges::adjacent_find(borders, std::greater_equal<>()) == borders.end();
    if (!plan.facts.is_object() || borders.size() < 2 || borders[0] != 0 || !grows) {
      return std::nullopt;
    }
    return plan;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::string text_of(const json& facts, const std::string& key) {
  const auto found = facts.find(key);
  if (found == facts.end()) return "not set";
  return found->is_string() ? fmt::format("'{}'", found->get<std::string>()) : found->dump();
}

// What differs between two plans, as the end of a sentence.
std::string difference(const PartPlan& before, const PartPlan& now) {
  json keys = before.facts;
  keys.update(now.facts);
  for (const auto& [key, value] : keys.items()) {
    const auto was = text_of(before.facts, key);
    const auto is = text_of(now.facts, key);
    if (was != is) return fmt::format("{} was {}, and is now {}", key, was, is);
  }
  return "the samples were cut into other parts";
}

// Appends the bytes of a file to another, and counts its lines.
Result<uint64_t> append_file(const std::string& path, WritableFile& to) {
  const Fd from(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!from) return io_error(errno, fmt::format("cannot open '{}'", path));
  std::string buffer(size_t{1} << 20, '\0');
  uint64_t lines = 0;
  while (true) {
    const ssize_t got = ::read(from.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(errno, fmt::format("cannot read '{}'", path));
    if (got == 0) return lines;
    const std::string_view some(buffer.data(), static_cast<size_t>(got));
    lines += static_cast<uint64_t>(std::ranges::count(some, '\n'));
    MUSTER_RETURN_IF_ERROR(to.append(some));
  }
}

}  // namespace

PartLock::~PartLock() {
  if (claims_ != nullptr) set_lock(claims_->get(), byte_, F_UNLCK, false);
}

Result<PartsDirectory> PartsDirectory::open(FileSystem& files, const std::string& path) {
  const std::string claims = path + "/claims";
  MUSTER_RETURN_IF_ERROR(files.create_directories(path));
  MUSTER_TRY(const auto names, files.list(path));
  if (!names.empty() && !files.exists(claims)) {
    return Error(ErrorKind::kUsage,
                 "'{}' is there already, with something else in it; rename it, or write to another "
                 "file",
                 path);
  }
  // First of all that is in it: by this file it is known again.
  Fd fd(::open(claims.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) return io_error(errno, fmt::format("cannot open '{}'", claims));
  MUSTER_RETURN_IF_ERROR(files.create_directories(path + "/done"));
  MUSTER_RETURN_IF_ERROR(files.create_directories(path + "/workers"));
  return PartsDirectory(files, path, std::move(fd));
}

std::string PartsDirectory::part_file(size_t part) const {
  return fmt::format("{}/{}", done_folder(), part);
}

Result<std::optional<PartLock>> PartsDirectory::take(int64_t byte, bool wait) const {
  if (set_lock(claims_->get(), byte, F_WRLCK, wait)) {
    return std::optional(PartLock(claims_, byte));
  }
  if (errno == EAGAIN || errno == EACCES) return std::optional<PartLock>();
  return io_error(errno, fmt::format("cannot lock '{}/claims'; the output must be on a disk whose "
                                     "files can be locked",
                                     path_));
}

Result<PartLock> PartsDirectory::lock() const {
  MUSTER_TRY(auto lock, take(kLauncher, false));
  if (lock) return *std::move(lock);
  return Error(ErrorKind::kUsage,
               "another process is working in '{}'; wait for it or stop it first", path_);
}

Status PartsDirectory::agree(const PartPlan& plan) const {
  MUSTER_TRY(const auto lock, take(kPlan, true));
  MUSTER_TRY(const auto before, this->plan());
  if (!before) {
    MUSTER_RETURN_IF_ERROR(files_->remove_all(done_folder()));
    MUSTER_RETURN_IF_ERROR(files_->remove_all(result_file()));
    MUSTER_RETURN_IF_ERROR(files_->create_directories(done_folder()));
    return write_file_atomically(*files_, plan_file(), encode(plan));
  }
  if (*before == plan) return {};
  return Error(ErrorKind::kUsage,
               "'{}' has parts of another result: {}; remove the directory to begin anew, or write "
               "to another file",
               path_, difference(*before, plan));
}

Result<std::optional<PartPlan>> PartsDirectory::plan() const {
  if (!files_->exists(plan_file())) return std::optional<PartPlan>();
  MUSTER_TRY(const auto text, files_->read(plan_file()));
  auto plan = decode(text);
  if (!plan) {
    return Error(ErrorKind::kData,
                 "'{}' is damaged or of another version; remove '{}' to begin anew", plan_file(),
                 path_);
  }
  return plan;
}

Result<std::vector<bool>> PartsDirectory::done(const PartPlan& plan) const {
  std::vector<bool> done(plan.parts());
  MUSTER_TRY(const auto names, files_->list(done_folder()));
  for (const auto& name : names) {
    size_t part = 0;
    const auto* end = name.data() + name.size();
    const auto read = std::from_chars(name.data(), end, part);
    if (read.ec == std::errc() && read.ptr == end && part < done.size()) done[part] = true;
  }
  return done;
}

Result<std::optional<Claim>> PartsDirectory::claim(const PartPlan& plan) {
  if (done_.empty()) {
    MUSTER_TRY(done_, done(plan));
  }
  MUSTER_CHECK(done_.size() == plan.parts(), "one plan for all claims");
  while (true) {
    while (next_ < done_.size()) {
      const size_t part = next_++;
      if (done_[part]) continue;
      MUSTER_TRY(auto lock, take(kFirstPart + static_cast<int64_t>(part), waits_));
      // Who had the lock before may have finished.
      if (!lock || files_->exists(part_file(part))) continue;
      return std::optional(Claim{part, *std::move(lock)});
    }
    if (waits_) return std::optional<Claim>();
    waits_ = true;
    next_ = 0;
    MUSTER_TRY(done_, done(plan));
  }
}

Status PartsDirectory::finish(const Claim& claim,
                              const std::function<Status(WritableFile& file)>& write) const {
  return replace_file(*files_, part_file(claim.part), [&](const std::string& aside) -> Status {
    MUSTER_TRY(auto file, files_->create(aside));
    MUSTER_RETURN_IF_ERROR(write(*file));
    MUSTER_RETURN_IF_ERROR(file->sync());
    return file->close();
  });
}

Status PartsDirectory::join(const PartPlan& plan, const std::string& out) const {
  MUSTER_TRY(auto file, files_->create(joined_file()));
  MUSTER_RETURN_IF_ERROR(file->append(plan.header));
  for (size_t part = 0; part < plan.parts(); ++part) {
    const uint64_t samples = plan.borders[part + 1] - plan.borders[part];
    MUSTER_TRY(const uint64_t lines, append_file(part_file(part), *file));
    if (lines != samples) {
      return Error(ErrorKind::kData,
                   "'{}' has {} lines for {} samples; delete it, and run the same command again",
                   part_file(part), lines, samples);
    }
  }
  MUSTER_RETURN_IF_ERROR(file->sync());
  MUSTER_RETURN_IF_ERROR(file->close());
  return move(joined_file(), out);
}

Status PartsDirectory::assemble(const std::function<Status(WritableFile& file)>& write) const {
  MUSTER_TRY(const auto lock, take(kResult, true));
  if (has_result()) return {};
  MUSTER_TRY(auto file, files_->create(joined_file()));
  MUSTER_RETURN_IF_ERROR(write(*file));
  MUSTER_RETURN_IF_ERROR(file->sync());
  MUSTER_RETURN_IF_ERROR(file->close());
  return move(joined_file(), result_file());
}

bool PartsDirectory::has_result() const { return files_->exists(result_file()); }

Status PartsDirectory::publish(const std::string& out) const { return move(result_file(), out); }

Status PartsDirectory::move(const std::string& from, const std::string& out) const {
  MUSTER_RETURN_IF_ERROR(files_->rename(from, out));
  const auto parent = std::filesystem::path(out).parent_path().string();
  return files_->sync_directory(parent.empty() ? "." : parent);
}

Status PartsDirectory::remove() const {
  // Most of it first, while the directory is still known by `claims`.
  MUSTER_RETURN_IF_ERROR(files_->remove_all(done_folder()));
  return files_->remove_all(path_);
}

}  // namespace muster::parts
