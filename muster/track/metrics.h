// The metrics of a run, one JSON object per line: {"step": 10, "loss": 2.3, ...}.
//
// A line is in the file (as far as the kernel is concerned) when write() returns, so a killed
// process loses none.
//
// Whoever has the run for itself and resumes it at step s calls truncate_after(s), which takes away
// what came after and will come again: the file of a resumed run is that of an undisturbed one,
// apart from times. Where several workers take turns nobody may take anything away, for it might be
// one that was stopped for a while and does not know yet how far the others are. They only append.
// What one of them then writes a second time says the same as the first time, and readers see it
// once. Except after a rollback (roster/types.h): the steps after it are computed again, and what
// was written of them before was wrong. Records written after a rollback have its number, and
// readers leave out what they replace.
//
// For that to hold, write a step's records before its snapshot is submitted, and sync() first if
// they are to survive a power cut as the snapshot does.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/base/file_system.h"
#include "muster/base/result.h"

namespace muster::track {

class MetricsWriter {
 public:
  // Creates the file or goes on at its end; a last line that a crash tore is ended there.
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

// The number of the last rollback before the record was written, 0: none.
uint64_t rollback_of(const nlohmann::json& record);
void set_rollback(nlohmann::json& record, uint64_t number);  // 0: none

// The history `before` up to `step`, and behind it those records of `more` that it does not have:
// for one who begins to record at `step` and knows the last steps itself, where `before` is what
// another one has recorded elsewhere. Both are the text of a file; steps come in order in them.
// Records of steps after `rollback_step` that were written before the rollback of this number are
// void.
std::string continue_metrics(std::string_view before, std::string_view more, int64_t step,
                             uint64_t rollback = 0, int64_t rollback_step = 0);

// Removes what is not the same each time that a job is trained.
void erase_times(nlohmann::json& record);

struct Metrics {
  // As they come, without repetitions (same step, same fields) and without what a rollback
  // replaced.
  std::vector<nlohmann::json> records;
  int64_t skipped = 0;  // lines that are no records, say a torn last one
};

// None if there is no such file. `most`: only the whole lines within its last so many bytes.
Result<Metrics> read_metrics(FileSystem& fs, const std::string& path,
                             size_t most = std::numeric_limits<size_t>::max());

}  // namespace muster::track
