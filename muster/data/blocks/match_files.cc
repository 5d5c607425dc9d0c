#include "muster/data/blocks/match_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>

namespace muster::data {

Result<std::vector<std::string>> match_files(const std::string& pattern) {
  namespace fs = std::filesystem;
  if (pattern.find_first_of("*?") == std::string::npos) return std::vector{pattern};
  const fs::path directory = fs::path(pattern).parent_path();
  const std::string names = fs::path(pattern).filename().string();
  std::vector<std::string> found;
  std::error_code why;
  for (fs::directory_iterator it(directory.empty() ? "." : directory, why), end; it != end;
       it.increment(why)) {
    const std::string name = it->path().filename().string();
    if (::fnmatch(names.c_str(), name.c_str(), FNM_PERIOD) == 0) {
      found.push_back((directory / name).string());
    }
  }
  if (why) {
    return Error(ErrorKind::kIo, "cannot list '{}': {}; patterns are for the last part of a path",
                 directory.string(), why.message());
  }
  if (found.empty())
    return Error(ErrorKind::kData, "no file matches '{}'; check the path", pattern);
  std::ranges::sort(found);
  return found;
}

}  // namespace muster::data
