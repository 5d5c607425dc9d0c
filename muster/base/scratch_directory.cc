#include "muster/base/scratch_directory.h"

#include <errno.h>
#include <stdlib.h>

#include <filesystem>

namespace muster {

Result<ScratchDirectory> ScratchDirectory::make(const std::string& prefix,
                                                const std::string& otherwise) {
  std::error_code failed;
  auto place = std::filesystem::temp_directory_path(failed);
  if (failed && otherwise.empty()) {
    return io_error(failed.value(), "there is no directory for temporary files (TMPDIR)");
  }
  if (failed) place = otherwise;
  return make_in(place.string(), prefix);
}

Result<ScratchDirectory> ScratchDirectory::make_in(const std::string& place,
                                                   const std::string& prefix) {
  std::string path = place + "/" + prefix + "-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return io_error(errno, fmt::format("cannot make a directory in '{}'", place));
  }
  return ScratchDirectory(std::move(path));
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace muster
