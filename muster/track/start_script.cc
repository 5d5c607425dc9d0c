#include "muster/track/start_script.h"

#include <unistd.h>

#include <filesystem>

#include <fmt/format.h>

#include "muster/base/shell.h"

namespace muster::track {
namespace {

using std::filesystem::perms;
constexpr perms kMayRead = perms::owner_read | perms::group_read | perms::others_read;

std::filesystem::path path_in(const std::string& run_directory) {
  std::error_code failed;
  return std::filesystem::absolute(run_directory, failed) / "program";
}

}  // namespace

std::string start_script(const std::vector<std::string>& start) {
  std::string script =
      "#!/bin/sh\n# Written by Muster: starts the program as a worker of this run.\nexec";
  for (const auto& word : start) script += " " + shell_quoted(word);
  return script + " \"$@\"\n";
}

Result<std::string> write_start_script(FileSystem& files, const std::string& run_directory,
                                       const std::vector<std::string>& start) {
  const auto path = path_in(run_directory);
  MUSTER_RETURN_IF_ERROR(write_file_atomically(files, path.string(), start_script(start)));
  // Whoever may read it, by the umask, may execute it.
  std::error_code failed;
  const auto read = std::filesystem::status(path, failed).permissions() & kMayRead;
  if (!failed) {
    std::filesystem::permissions(path, static_cast<perms>(static_cast<unsigned>(read) >> 2U),
                                 std::filesystem::perm_options::add, failed);
  }
  if (failed) {
    return io_error(failed.value(), fmt::format("cannot make '{}' executable", path.string()));
  }
  return path.string();
}

std::string find_start_script(const std::string& run_directory) {
  const auto path = path_in(run_directory);
  return access(path.c_str(), X_OK) == 0 ? path.string() : "";
}

}  // namespace muster::track
