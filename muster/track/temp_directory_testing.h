// A directory of its own for a test, gone afterwards.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "muster/base/check.h"

namespace muster::track {

class TempDirectory {
 public:
  TempDirectory() : path_((std::filesystem::temp_directory_path() / "muster-XXXXXX").string()) {
    MUSTER_CHECK(::mkdtemp(path_.data()) != nullptr, "a test needs a temporary directory");
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace muster::track
