#include "tools/muster-launch/coordinator_file.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "tools/muster/find_run.h"

namespace muster::cli {

Result<CoordinatorFile> CoordinatorFile::write(FileSystem& files, const track::RunDirectory& run,
                                               const std::string& address,
                                               const std::string& servers) {
  nlohmann::json text = {{"address", address}, {"pid", getpid()}};
  if (!servers.empty()) text["servers"] = servers;
  const std::string path = run.coordinator_file();
  MUSTER_RETURN_IF_ERROR(write_file_atomically(files, path, text.dump() + "\n"));
  return CoordinatorFile(files, path);
}

CoordinatorFile::CoordinatorFile(CoordinatorFile&& other) noexcept
    : files_(std::exchange(other.files_, nullptr)), path_(std::move(other.path_)) {}

CoordinatorFile::~CoordinatorFile() {
  if (files_ != nullptr) (void)files_->remove_all(path_);
}

Result<std::string> read_coordinator_file(FileSystem& files, const track::RunDirectory& run) {
  const auto none = [&](std::string_view why) {
    return Error(ErrorKind::kUsage,
                 "{} has no coordinator now: {}; `muster runs show {}` tells how it is",
                 run_name(run), why, run_name(run));
  };
  const std::string path = run.coordinator_file();
  if (!files.exists(path)) {
    if (track::RunLock::is_held(run.lock_file())) return none("it is trained by one worker alone");
    // Workers whose coordinator has ended hold no lock, and go on.
    const auto state = run.read_status().state;
    return none(state == track::RunState::kRunning || state == track::RunState::kDied
                    ? "if workers are left of it, they go on by themselves"
                    : fmt::format("it is {}", run_state_name(state)));
  }
  // One that was killed takes nothing down. On another machine the lock may not be seen: then the
  // address is tried.
  MUSTER_TRY(const auto text, files.read(path));
  const auto object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object() || !object.contains("address") || !object["address"].is_string()) {
    return none(fmt::format("'{}' cannot be read", path));
  }
  return object["address"].get<std::string>();
}

std::string servers_address(const std::string& run) {
  std::ifstream file(run + "/coordinator.json");
  const auto object = nlohmann::json::parse(file, nullptr, false);
  return object.is_object() ? object.value("servers", "") : "";
}

std::string job_name(const track::RunDirectory& run) {
  std::error_code failed;
  const auto real = std::filesystem::canonical(run.path(), failed);
  return failed ? run_name(run) : real.filename().string();
}

bool is_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size()) return false;
  return text.find('/') == std::string::npos &&
         std::all_of(text.begin() + static_cast<std::ptrdiff_t>(colon) + 1, text.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

Result<std::string> find_coordinator(const RunChoice& choice, FileSystem& files) {
  if (is_address(choice.name)) return choice.name;
  MUSTER_TRY(const auto run, find_run(choice, files));
  return read_coordinator_file(files, run);
}

}  // namespace muster::cli
