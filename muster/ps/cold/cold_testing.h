// Rows on disk in a directory of a test.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "muster/base/check.h"
#include "muster/base/scratch_directory.h"
#include "muster/ps/cold/rocks_rows.h"

namespace muster::ps {

class TestDisk {
 public:
  TestDisk() : scratch_(*ScratchDirectory::make("muster-rows")) {
    // So little that rows are in files soon.
    auto opened = open_rocks({scratch_.path(), "s0-1", size_t{1} << 20});
    MUSTER_CHECK(opened.ok(), "a database can be made");
    rows_ = std::move(opened).value();
  }

  ColdRows& rows() { return *rows_; }
  const std::string& parent() const { return scratch_.path(); }
  std::string path() const { return scratch_.path() + "/s0-1.rows"; }
  void close() { rows_.reset(); }

  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path())) {
      if (entry.path().extension() == ".sst") files.push_back(entry.path());
    }
    return files;
  }
  // Changes bytes in every block of every file. The database may just be writing others in their
  // place.
  void damage() const {
    for (const auto& path : files()) {
      std::error_code gone;
      const auto size = static_cast<std::streamoff>(std::filesystem::file_size(path, gone));
      if (gone) continue;
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      for (std::streamoff at = 100; at < size / 2; at += 512) {
        file.seekp(at);
        file.write("damaged", 7);
      }
    }
  }

 private:
  ScratchDirectory scratch_;
  std::unique_ptr<ColdRows> rows_;
};

}  // namespace muster::ps
