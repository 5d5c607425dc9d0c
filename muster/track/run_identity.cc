#include "muster/track/run_identity.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <string_view>
#include <thread>

#include <nlohmann/json.hpp>

namespace muster::track {
namespace {

using nlohmann::json;

constexpr const char* kIdFile = "copy.json";
constexpr const char* kAttemptFile = "attempt.json";
constexpr const char* kChangesLock = "changes.lock";

std::string in(const std::string& directory, std::string_view name) {
  return fmt::format("{}/{}", directory, name);
}

struct Attempt {
  std::string id;  // empty: there is none, or it cannot be read, which makes another one
  bool is_launchers = false;
  // NOLINTNEXTLINE(readability-redundant-member-init): or who leaves it out is warned by GCC
  std::string to = {};  // checkpoint.to, in the launcher's
};

Attempt read_attempt(FileSystem& files, const std::string& directory) {
  const auto path = in(directory, kAttemptFile);
  if (!files.exists(path)) return {};
  const auto text = files.read(path);
  if (!text.ok()) return {};
  const json object = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  try {
    return {.id = object.at("attempt").get<std::string>(),
            .is_launchers = object.at("launcher").get<bool>(),
            .to = object.at("to").get<std::string>()};
  } catch (const json::exception&) {
    return {};
  }
}

Status write_attempt(FileSystem& files, const std::string& directory, const Attempt& attempt) {
  const json object = {
      {"attempt", attempt.id}, {"launcher", attempt.is_launchers}, {"to", attempt.to}};
  return write_file_atomically(files, in(directory, kAttemptFile), object.dump() + "\n");
}

// Whether the directory has nothing but what a worker, or `muster join`, makes before job.yaml.
Result<bool> is_begun_or_empty(FileSystem& files, const std::string& path) {
  MUSTER_TRY(const auto names, files.list(path));
  return std::ranges::all_of(names, [](const std::string& name) {
    return name == "workers" || name == kChangesLock || name.starts_with(kIdFile) ||
           name.starts_with("job.yaml.");
  });
}

Error refused(const std::string& path, std::string_view why) {
  return Error(ErrorKind::kRefused,
               "'{}' on this machine {}: move it away, and the worker makes a directory for this "
               "run there",
               path, why);
}

}  // namespace

Result<RunId> read_run_id(FileSystem& files, const std::string& run_directory) {
  const auto path = in(run_directory, kIdFile);
  if (!files.exists(path)) return RunId();
  MUSTER_TRY(const auto text, files.read(path));
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    RunId id{.run = object.at("run").get<std::string>(),
             .writer = object.at("writer").get<std::string>(),
             .passed_over = object.at("passed_over").get<int64_t>()};
    id.claiming = object.value("claiming", "");
    id.to = object.value("to", "");
    return id;
  } catch (const json::exception&) {
    return Error(ErrorKind::kCheckpoint,
                 "'{}' is damaged: it says which copy belongs to the run. Remove it, and name "
                 "another place in checkpoint.to",
                 path);
  }
}

Status write_run_id(FileSystem& files, const std::string& run_directory, const RunId& id) {
  json object = {{"run", id.run}, {"writer", id.writer}, {"passed_over", id.passed_over}};
  if (!id.claiming.empty()) object["claiming"] = id.claiming;
  if (!id.to.empty()) object["to"] = id.to;
  return write_file_atomically(files, in(run_directory, kIdFile), object.dump() + "\n");
}

std::string random_id() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", device());
  return id;
}

Result<RunOffer> begin_attempt(FileSystem& files, const RunDirectory& run,
                               const AttemptOptions& options) {
  const auto before = read_attempt(files, run.path());
  if (!before.to.empty() && before.to != options.to && !options.has_checkpoint) {
    return Error(
        ErrorKind::kUsage,
        "checkpoint.to was '{0}', and what was trained is there or on other machines, not "
        "in '{1}': fetch it first with `muster runs fetch {0} --run-dir {1}`; if nothing was "
        "trained, start the job anew with `muster train`",
        before.to, run.path());
  }
  RunOffer offer;
  offer.has_checkpoint = options.has_checkpoint;
  MUSTER_TRY(offer.job, files.read(run.job_file()));
  MUSTER_TRY(auto id, read_run_id(files, run.path()));
  if (id.run.empty()) {
    id.run = random_id();
    MUSTER_RETURN_IF_ERROR(write_run_id(files, run.path(), id));
  }
  offer.run = id.run;
  offer.attempt = options.anew || before.id.empty() ? random_id() : before.id;
  MUSTER_RETURN_IF_ERROR(write_attempt(
      files, run.path(), {.id = offer.attempt, .is_launchers = true, .to = options.to}));
  return offer;
}

Result<RunLock> lock_for_changes(const std::string& path) {
  constexpr auto kLook = std::chrono::milliseconds(20);
  constexpr int kLooks = 1500;  // 30 s: whoever holds it moves small files
  for (int i = 1;; ++i) {
    auto lock = RunLock::acquire(in(path, kChangesLock), path);
    if (lock.ok()) return lock;
    if (lock.error().kind() != ErrorKind::kUsage) return lock;
    if (i == kLooks) {
      return Error(ErrorKind::kIo, "another worker has been changing '{}' for 30 s", path);
    }
    std::this_thread::sleep_for(kLook);
  }
}

namespace {

// Nothing: it is not ready. Otherwise whether it is the launcher's.
Result<std::optional<bool>> find_ready(FileSystem& files, const std::string& path,
                                       const RunOffer& offer) {
  const std::string job = in(path, "job.yaml");
  if (!files.exists(job)) return std::optional<bool>();
  MUSTER_TRY(const auto own, read_run_id(files, path));
  if (own.run != offer.run) return refused(path, "is another run");
  const auto attempt = read_attempt(files, path);
  MUSTER_TRY(const auto text, files.read(job));
  const bool is_ready = attempt.id == offer.attempt && text == offer.job;
  return is_ready ? std::optional(attempt.is_launchers) : std::nullopt;
}

}  // namespace

Result<bool> make_ready(FileSystem& files, const std::string& path, const RunOffer& offer,
                        const std::function<Status()>& renew) {
  MUSTER_TRY(auto ready, find_ready(files, path, offer));
  if (ready) return *ready;
  MUSTER_RETURN_IF_ERROR(files.create_directories(path));
  MUSTER_TRY(const auto lock, lock_for_changes(path));
  // Another worker of this host may have made it ready.
  MUSTER_TRY(ready, find_ready(files, path, offer));
  if (ready) return *ready;
  const std::string job = in(path, "job.yaml");
  if (files.exists(job)) {
    if (RunLock::is_held(in(path, "lock"))) {
      return Error(ErrorKind::kIo, "another process is training in '{}'; stop it first", path);
    }
    MUSTER_RETURN_IF_ERROR(renew());
  } else {
    MUSTER_TRY(const auto own, read_run_id(files, path));
    MUSTER_TRY(const bool is_ours, is_begun_or_empty(files, path));
    if (!is_ours || (!own.run.empty() && own.run != offer.run)) {
      return refused(path, "has files that are not those of a run");
    }
    MUSTER_RETURN_IF_ERROR(write_run_id(files, path, {.run = offer.run, .writer = ""}));
  }
  // The job comes before the attempt, so that a directory that was begun is begun again.
  MUSTER_RETURN_IF_ERROR(write_file_atomically(files, job, offer.job));
  MUSTER_RETURN_IF_ERROR(write_attempt(files, path, {.id = offer.attempt}));
  return false;
}

}  // namespace muster::track
