// The directory of a run: everything one training run leaves behind.
//
//   runs/lenet-mnist-20260301-123005/
//     job.yaml                  the resolved job: running it again gives the same bits
//     status.json               running, finished, failed or interrupted, and why
//     metrics.jsonl             metrics.h
//     events.out.tfevents.*     event_file.h
//     log.txt                   base/log.h
//     checkpoints/              ckpt/snapshot.h
//     copy.json                 of which copy elsewhere this is the run: run_identity.h
//     attempt.json              for which attempt of several workers it is ready: run_identity.h
//     index/                    of data that is read by blocks: data/blocks/open_blocks.h
//     result.json               the final figures
//     workers/                  of a job of several: ID.log and ID.err (standard error) of each
//     events.jsonl              run_events.h
//     launch.log                of a job of several: who was started, ended, let in, and why
//     coordinator.json          of a job of several: where its coordinator is, while it runs
//     lock                      held by the process that trains here, or started those who do
//   runs/latest -> the run that was started last
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/base/clock.h"
#include "muster/base/file_system.h"
#include "muster/base/result.h"

namespace muster::track {

enum class RunState {
  kUnknown,  // no status file that can be read
  kRunning,
  kFinished,
  kFailed,
  kInterrupted,  // by a signal; can be resumed
  kDied,         // says that it is running, but nobody holds its lock: killed, or the machine went
};

// "running", ...
std::string_view run_state_name(RunState state);

struct RunStatus {
  RunState state = RunState::kUnknown;
  std::string reason;   // of failed and interrupted: a sentence
  std::string started;  // UTC, as utc_timestamp writes it
  std::string updated;
  int64_t step = 0;
};

// The right to train in a run directory. Held until destroyed; the kernel releases it when the
// process ends, however it ends.
class RunLock {
 public:
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;
  ~RunLock();

  static Result<RunLock> acquire(const std::string& lock_file, const std::string& run_path);
  // Whether somebody holds it; does not disturb them, nor one who is about to take it.
  static bool is_held(const std::string& lock_file);

 private:
  explicit RunLock(int fd) : fd_(fd) {}
  int fd_;
};

// Names and small files of one run directory; owns nothing but the path. The lock works on the real
// disk whatever `fs` is.
class RunDirectory {
 public:
  // Makes `root`/`job_name`-yyyymmdd-hhmmss, with -2, -3, ... behind it if that is taken: each call
  // gets a directory of its own, also when two start in one second. Characters that do not belong
  // in a file name become '-'. `root`/latest points to it afterwards if the disk can do links; a
  // run does not fail for want of a shortcut.
  static Result<RunDirectory> create(FileSystem& fs, const std::string& root,
                                     std::string_view job_name, const Clock& clock);
  // One that is there (it has a job.yaml), also by way of `latest`.
  static Result<RunDirectory> open(FileSystem& fs, const std::string& path);

  const std::string& path() const { return path_; }
  std::string job_file() const { return path_ + "/job.yaml"; }
  std::string metrics_file() const { return path_ + "/metrics.jsonl"; }
  std::string events_file() const { return path_ + "/events.jsonl"; }
  std::string log_file() const { return path_ + "/log.txt"; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string indexes() const { return path_ + "/index"; }
  std::string result_file() const { return path_ + "/result.json"; }
  std::string status_file() const { return path_ + "/status.json"; }
  std::string worker_logs() const { return path_ + "/workers"; }
  std::string worker_log(const std::string& id) const { return worker_logs() + "/" + id + ".log"; }
  std::string lock_file() const { return path_ + "/lock"; }
  std::string launch_log_file() const { return path_ + "/launch.log"; }
  std::string coordinator_file() const { return path_ + "/coordinator.json"; }

  // An error of kind kUsage if another process trains here.
  Result<RunLock> lock() const { return RunLock::acquire(lock_file(), path_); }

  // Each replaces the file atomically.
  Status write_job(std::string_view yaml) const;
  Status write_result(const nlohmann::json& result) const;
  // Keeps `started` of the status before, if there is one.
  Status write_status(RunState state, std::string_view reason, int64_t step,
                      const Clock& clock) const;

  // kUnknown if there is none or it cannot be read.
  RunStatus read_status() const;
  // Nothing if there is none, or it is not an object.
  std::optional<nlohmann::json> read_result() const;

 private:
  RunDirectory(FileSystem& fs, std::string path) : fs_(&fs), path_(std::move(path)) {}
  FileSystem* fs_;
  std::string path_;
};

struct RunSummary {
  std::string name;  // of the directory
  std::string path;
  RunStatus status;
  nlohmann::json result;  // null if there is none yet
};

// The runs under `root`, oldest first; none if there is no such directory. What is not a run
// directory is passed over, what is broken in one is left at its default.
Result<std::vector<RunSummary>> list_runs(FileSystem& fs, const std::string& root);

}  // namespace muster::track
