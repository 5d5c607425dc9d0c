// The metrics of a run, one JSON object per line: {"step": 10, "loss": 2.3, ...}.
//
// A line is in the file (as far as the kernel is concerned) when write() returns, so a killed
// process loses none. When a run is resumed at step s, truncate_after(s) takes away what came
// after, which will come again: the file of a resumed run is that of an undisturbed one, apart from
// times.
//
// For that to hold, write a step's records before its snapshot is submitted, and sync() first if
// they are to survive a power cut as the snapshot does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/base/file_system.h"
#include "muster/base/result.h"

namespace muster::track {

class MetricsWriter {
 public:
  // Creates the file or goes on at its end; a last line that a crash tore is taken away first.
  static Result<MetricsWriter> open(FileSystem& fs, const std::string& path);

  // `record` is an object with an integer "step". Numbers that are not finite become null.
  Status write(const nlohmann::json& record);
  // Takes away what follows the last record of a step up to `step`: records of later steps, lines
  // that are no records. The rest stays as it is, byte for byte. Atomic, also for a crash.
  Status truncate_after(int64_t step);
  Status sync() { return file_->sync(); }

 private:
  MetricsWriter(FileSystem& fs, std::string path, std::unique_ptr<WritableFile> file)
      : fs_(&fs), path_(std::move(path)), file_(std::move(file)) {}

  FileSystem* fs_;
  std::string path_;
  std::unique_ptr<WritableFile> file_;
};

struct Metrics {
  std::vector<nlohmann::json> records;  // as they come
  int64_t skipped = 0;                  // lines that are no records, say a torn last one
};

// None if there is no such file.
Result<Metrics> read_metrics(FileSystem& fs, const std::string& path);

}  // namespace muster::track
