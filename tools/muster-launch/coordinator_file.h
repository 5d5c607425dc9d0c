// RUN/coordinator.json: how others find the coordinator of a run that is being trained.
#pragma once

#include <string>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/track/run_directory.h"

#include "tools/muster/arguments.h"

namespace muster::cli {

// `servers`: where the job's parameter servers are registered; "": it has none.
// The file exists as long as this object does. Whoever writes it holds the run's lock.
class CoordinatorFile {
 public:
  static Result<CoordinatorFile> write(FileSystem& files, const track::RunDirectory& run,
                                       const std::string& address, const std::string& servers = "");
  CoordinatorFile(CoordinatorFile&& other) noexcept;
  CoordinatorFile& operator=(CoordinatorFile&&) = delete;
  ~CoordinatorFile();

 private:
  CoordinatorFile(FileSystem& files, std::string path) : files_(&files), path_(std::move(path)) {}
  FileSystem* files_;
  std::string path_;
};

// Where the coordinator of that run is. An error says that there is none.
Result<std::string> read_coordinator_file(FileSystem& files, const track::RunDirectory& run);

// Where the parameter servers of a run in this directory are registered; "": it has none now.
std::string servers_address(const std::string& run);

// What the coordinator calls the job: the name of the run's directory, whatever link led there.
std::string job_name(const track::RunDirectory& run);

// Whether this is HOST:PORT rather than a run.
bool is_address(const std::string& text);

// The coordinator that is meant by an address, a run, or nothing (the latest run).
Result<std::string> find_coordinator(const RunChoice& choice, FileSystem& files);

}  // namespace muster::cli
