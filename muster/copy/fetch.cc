#include "muster/copy/fetch.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "muster/base/hash.h"
#include "muster/base/text.h"
#include "muster/ckpt/snapshot.h"
#include "muster/copy/copy_index.h"
#include "muster/store/glob.h"
#include "muster/store/url.h"
#include "muster/track/run_directory.h"

namespace muster::copy {
namespace {

constexpr size_t kAtOnce = size_t{16} << 20;
constexpr const char* kMetricsFile = "metrics.jsonl";
// A run directory that is being made is called so, and a number; lists of runs pass over it.
constexpr std::string_view kUnfinished = ".fetch-";

std::string parent_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Fetches the files of one state of the copy.
class Fetcher {
 public:
  Fetcher(store::Store& store, FileSystem& files, const FetchOptions& options, std::string to,
          StoredIndex stored)
      : store_(store),
        files_(files),
        options_(options),
        to_(std::move(to)),
        stored_(std::move(stored)) {}

  const CopyIndex& index() const { return stored_.index; }
  uint64_t bytes() const { return bytes_; }
  std::vector<std::string> take_notes() { return std::move(notes_); }
  // Of a directory that has what could be fetched. `writer`: of the last claim from there.
  RunId run_id(const std::string& writer) const {
    return {.run = index().run, .writer = writer, .passed_over = passed_over_};
  }

  // Whether the copy is still as it was when its index was read.
  Result<bool> is_current() {
    MUSTER_TRY(const auto now, read_index(store_, to_));
    return now && now->version == stored_.version;
  }

  Status fetch(const CopiedFile& file, const std::string& path) {
    if (options_.tell) {
      options_.tell(
          fmt::format("fetching {} ({})", file.name, human_bytes(static_cast<double>(file.size))));
    }
    MUSTER_RETURN_IF_ERROR(files_.create_directories(parent_of(path)));
    MUSTER_TRY(const auto out, files_.create(path));
    // Its name is used once, so there is no other version to be confused with.
    const store::Object object{
        .name = address_in(to_, file.object), .size = file.size, .version = {}};
    std::vector<std::byte> buffer(std::min<uint64_t>(file.size, kAtOnce));
    Hasher hasher;
    for (uint64_t at = 0; at < file.size; at += buffer.size()) {
      const auto part = std::span(buffer).first(std::min<uint64_t>(file.size - at, buffer.size()));
      MUSTER_RETURN_IF_ERROR(store_.read(object, at, part));
      hasher.add(part);
      MUSTER_RETURN_IF_ERROR(out->append(part));
    }
    if (hasher.finish().hex() != file.hash) {
      return Error(ErrorKind::kCheckpoint, "'{}' is damaged: its bytes have changed", object.name);
    }
    MUSTER_RETURN_IF_ERROR(out->sync());
    MUSTER_RETURN_IF_ERROR(out->close());
    bytes_ += file.size;
    return {};
  }

  // Into DIRECTORY/checkpoints; whole, or not at all. Fine if it is there.
  Status fetch(const CopiedCheckpoint& checkpoint, const std::string& directory) {
    const std::string all = directory + "/checkpoints";
    const std::string name = ckpt::snapshot_directory_name(checkpoint.step);
    const std::string place = all + "/" + name;
    if (files_.exists(place)) return {};
    // A name that ckpt takes for a leftover if this process dies.
    const std::string aside = fmt::format("{}/.tmp-0-{}-{}", all, name, random_id());
    const auto fetched = [&]() -> Status {
      for (const auto& file : checkpoint.files) {
        MUSTER_RETURN_IF_ERROR(
            fetch(file, aside + "/" + file.name.substr(file.name.rfind('/') + 1)));
      }
      MUSTER_RETURN_IF_ERROR(files_.sync_directory(aside));
      MUSTER_RETURN_IF_ERROR(files_.rename(aside, place));
      return files_.sync_directory(all);
    }();
    if (!fetched.ok()) (void)files_.remove_all(aside);
    return fetched;
  }

  // The newest one that is whole and after `after`, and the best one.
  Result<std::optional<int64_t>> fetch_checkpoints(const std::string& directory, int64_t after) {
    const auto& all = index().checkpoints;
    std::optional<int64_t> newest;
    for (auto it = all.rbegin(); it != all.rend() && !newest && it->step > after; ++it) {
      MUSTER_TRY(const bool whole, try_fetch(*it, directory));
      if (whole) newest = it->step;
    }
    if (!newest && !all.empty() && all.back().step > after) {
      return Error(ErrorKind::kCheckpoint, "no checkpoint in '{}' is whole; the newest: {}", to_,
                   notes_.front());
    }
    const auto* const best = index().best();
    if (newest && best != nullptr && best->step < *newest) {
      MUSTER_TRY(const bool whole, try_fetch(*best, directory));
      (void)whole;
    }
    return newest;
  }

 private:
  // False: it is damaged, and told in the notes.
  Result<bool> try_fetch(const CopiedCheckpoint& checkpoint, const std::string& directory) {
    auto fetched = fetch(checkpoint, directory);
    if (fetched.ok()) return true;
    const auto kind = fetched.error().kind();
    if (kind != ErrorKind::kCheckpoint && kind != ErrorKind::kData) {
      return std::move(fetched).error();
    }
    passed_over_ = std::max(passed_over_, checkpoint.step);
    notes_.push_back(fmt::format("the checkpoint of step {} is passed over: {}", checkpoint.step,
                                 fetched.error().message()));
    return false;
  }

  store::Store& store_;
  FileSystem& files_;
  const FetchOptions& options_;
  const std::string to_;
  const StoredIndex stored_;
  uint64_t bytes_ = 0;
  int64_t passed_over_ = -1;
  std::vector<std::string> notes_;
};

// What processes that were killed have begun: the kernel has released their locks.
void remove_abandoned(FileSystem& files, const std::string& parent) {
  const auto names = files.list(parent);
  if (!names.ok()) return;
  for (const auto& name : *names) {
    if (!name.starts_with(kUnfinished)) continue;
    const std::string path = fmt::format("{}/{}", parent, name);
    const auto lock = track::RunLock::acquire(path + "/lock", path);
    if (lock.ok()) (void)files.remove_all(path);
  }
}

struct Unfinished {
  std::string path;
  track::RunLock lock;  // for as long as it is being filled
};
Result<Unfinished> begin_directory(FileSystem& files, const std::string& parent) {
  constexpr int kTries = 5;  // another fetch may take it for abandoned before it is locked
  for (int i = 1;; ++i) {
    std::string path = fmt::format("{}/{}{}", parent, kUnfinished, random_id());
    MUSTER_RETURN_IF_ERROR(files.create_directories(path));
    auto lock = track::RunLock::acquire(path + "/lock", path);
    if (lock.ok() && files.exists(path + "/lock")) {
      return Unfinished{.path = std::move(path), .lock = *std::move(lock)};
    }
    if (i == kTries) {
      return Error(ErrorKind::kIo, "cannot lock '{}/lock' in order to fetch into it", path);
    }
  }
}

Result<std::optional<int64_t>> make_directory(Fetcher& fetcher, FileSystem& files,
                                              const std::string& directory) {
  const std::string parent = parent_of(directory);
  MUSTER_RETURN_IF_ERROR(files.create_directories(parent));
  remove_abandoned(files, parent);
  MUSTER_TRY(const auto unfinished, begin_directory(files, parent));
  const std::string& aside = unfinished.path;
  const auto fetched = [&]() -> Result<std::optional<int64_t>> {
    MUSTER_RETURN_IF_ERROR(files.create_directories(aside + "/checkpoints"));
    for (const auto& file : fetcher.index().files) {
      MUSTER_RETURN_IF_ERROR(fetcher.fetch(file, aside + "/" + file.name));
    }
    MUSTER_TRY(const auto step, fetcher.fetch_checkpoints(aside, -1));
    MUSTER_RETURN_IF_ERROR(write_run_id(files, aside, fetcher.run_id("")));
    MUSTER_RETURN_IF_ERROR(files.sync_directory(aside));
    MUSTER_RETURN_IF_ERROR(files.rename(aside, directory));
    MUSTER_RETURN_IF_ERROR(files.sync_directory(parent));
    return step;
  }();
  if (!fetched.ok()) (void)files.remove_all(aside);
  return fetched;
}

// Another process has continued the run since this directory was last its: which checkpoints are
// invalid after a rollback, the copy knows better.
Status take_over_rollback(Fetcher& fetcher, FileSystem& files, ckpt::SnapshotStore& local) {
  const auto* const file = fetcher.index().find(fmt::format("checkpoints/{}", ckpt::kRollbackFile));
  if (file == nullptr) return local.finish_rollback();
  // A name that ckpt takes for a leftover if this process dies.
  const std::string aside = fmt::format("{}/.tmp-0-rollback-{}", local.directory(), random_id());
  const auto theirs = [&]() -> Result<ckpt::SnapshotStore::Rollback> {
    MUSTER_RETURN_IF_ERROR(fetcher.fetch(*file, aside + "/" + ckpt::kRollbackFile));
    return ckpt::SnapshotStore(files, aside, 1, true).rollback();
  }();
  (void)files.remove_all(aside);
  if (!theirs.ok()) return theirs.error();
  return local.roll_back(*theirs);
}

Result<std::optional<int64_t>> update_directory(Fetcher& fetcher, FileSystem& files,
                                                const std::string& directory) {
  MUSTER_TRY(const auto own, read_run_id(files, directory));
  if (own.run != fetcher.index().run) {
    return Error(ErrorKind::kUsage,
                 "'{}' is there already, and is not the run of the copy; name another directory "
                 "with --run-dir",
                 directory);
  }
  MUSTER_TRY(const auto run, track::RunDirectory::open(files, directory));
  MUSTER_TRY(const auto lock, run.lock());
  ckpt::SnapshotStore local(files, run.checkpoints(), 1, true);
  if (own.writer != fetcher.index().writer) {
    MUSTER_RETURN_IF_ERROR(take_over_rollback(fetcher, files, local));
  }
  MUSTER_TRY(const auto there, local.list());
  MUSTER_TRY(const auto step,
             fetcher.fetch_checkpoints(directory, there.empty() ? -1 : there.back().step));
  // Of the steps up to that checkpoint, those here may have none.
  if (const auto* const metrics = fetcher.index().find(kMetricsFile); step && metrics != nullptr) {
    MUSTER_RETURN_IF_ERROR(replace_file(files, run.metrics_file(), [&](const std::string& aside) {
      return fetcher.fetch(*metrics, aside);
    }));
  }
  MUSTER_RETURN_IF_ERROR(write_run_id(files, directory, fetcher.run_id(own.writer)));
  return step;
}

// As the job's checkpoint.to has to be (config/validate.cc).
Status check_place(const std::string& to) {
  MUSTER_TRY(const auto address, store::parse_address(address_in(to, kIndexFile)));
  const bool possible =
      address.scheme == store::Scheme::kFile || address.scheme == store::Scheme::kS3;
  if (possible && !store::has_wildcard(to)) return {};
  return Error(ErrorKind::kUsage,
               "'{}' cannot be the copy of a run: name what the job has in checkpoint.to, "
               "s3://BUCKET/PREFIX or a directory",
               store::printable(to));
}

}  // namespace

Result<Fetched> fetch_run(store::Store& store, FileSystem& files, const FetchOptions& options) {
  const std::string to = plain_place(options.to);
  MUSTER_RETURN_IF_ERROR(check_place(to));
  constexpr int kTries = 5;
  for (int i = 1;; ++i) {
    MUSTER_TRY(auto stored, read_index(store, to));
    if (!stored) {
      return Error(ErrorKind::kCheckpoint,
                   "there is no copy of a run in '{}': it has no {}; name what the job has in "
                   "checkpoint.to",
                   to, kIndexFile);
    }
    Fetcher fetcher(store, files, options, to, *std::move(stored));
    Fetched result;
    result.run_directory = options.run_directory.empty() ? options.runs + "/" + fetcher.index().name
                                                         : options.run_directory;
    const bool there = files.exists(result.run_directory);
    auto step = there ? update_directory(fetcher, files, result.run_directory)
                      : make_directory(fetcher, files, result.run_directory);
    result.bytes = fetcher.bytes();
    result.notes = fetcher.take_notes();
    // What was missing may have been superseded while it was fetched.
    if (!step.ok() || !result.notes.empty()) {
      MUSTER_TRY(const bool current, fetcher.is_current());
      if (!current && i < kTries) continue;
    }
    if (!step.ok()) return std::move(step).error();
    result.step = *step;
    return result;
  }
}

}  // namespace muster::copy
