#include "muster/copy/fetch.h"

#include <filesystem>
#include <utility>

#include "muster/ckpt/snapshot.h"
#include "muster/copy/copy_index.h"
#include "muster/copy/fetcher.h"
#include "muster/store/glob.h"
#include "muster/store/url.h"
#include "muster/track/run_directory.h"

namespace muster::copy {
namespace {

// A run directory that is being made is called so, and a number; lists of runs pass over it.
constexpr std::string_view kUnfinished = ".fetch-";

std::string parent_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

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
Status take_over_rollback(Fetcher& fetcher, ckpt::SnapshotStore& local) {
  MUSTER_TRY(const auto theirs, fetcher.rollback());
  return theirs.roster != 0 ? local.roll_back(theirs) : local.finish_rollback();
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
  const bool elsewhere = !own.claimed_as(fetcher.index().writer);
  if (elsewhere) {
    MUSTER_RETURN_IF_ERROR(take_over_rollback(fetcher, local));
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
  // How the run ended, if it has.
  const auto* const result = fetcher.index().find(kResultFile);
  if (result != nullptr && (step || elsewhere)) {
    MUSTER_RETURN_IF_ERROR(replace_file(files, run.result_file(), [&](const std::string& aside) {
      return fetcher.fetch(*result, aside);
    }));
  }
  RunId id = fetcher.run_id(own.writer);
  id.claiming = own.claiming;
  id.to = own.to;
  MUSTER_RETURN_IF_ERROR(write_run_id(files, directory, id));
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
    Fetcher fetcher(store, files, to, *std::move(stored), {.tell = options.tell});
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
