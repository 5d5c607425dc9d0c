#include "tools/muster/out_file.h"

#include <filesystem>

namespace muster::cli {

Status check_out_file(FileSystem& files, const std::string& path, bool force) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return Error(ErrorKind::kUsage, "--out: '{}' is a directory; name a file in it", path);
  }
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
    return Error(ErrorKind::kUsage, "--out: there is no folder '{}'; make it first",
                 folder.string());
  }
  if (!force && files.exists(path)) {
    return Error(ErrorKind::kUsage, "'{}' is there already; --force replaces it", path);
  }
  return {};
}

}  // namespace muster::cli
