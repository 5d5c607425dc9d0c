// The rows of a checkpoint's tables, for `muster export`: a safetensors file with
//
//   keys      U64 [n]          ascending
//   rows      F32 [n, width]   the weights of each key
//   evicted   U64 [m]          with --since: keys whose rows are gone
//
// and in its metadata `step`, the checkpoint's, and `since`, if that was asked for. With --since
// there are only rows that were updated in that step or a later one (steps count from 0): together
// with the rows of the checkpoint of that step, without those of `evicted`, they are all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/ckpt/snapshot.h"
#include "muster/ps/export_rows.h"
#include "muster/track/run_directory.h"

namespace muster::cli {

struct RowsOfCheckpoint {
  int64_t step = 0;
  std::optional<int64_t> since;
  int64_t width = 0;
  ps::ExportedRows rows;
};

// Nothing: the run's job has no rows. An error if `since` is later than the checkpoint, or so early
// that the checkpoint does not know any more what was evicted.
Result<std::optional<RowsOfCheckpoint>> rows_of(const track::RunDirectory& run,
                                                const ckpt::Snapshot& snapshot,
                                                std::optional<int64_t> since, FileSystem& files);

// Where they are written if the weights are written to `out`: x.safetensors, x.rows.safetensors.
std::string rows_file(const std::string& out);
Status write_rows(FileSystem& files, const RowsOfCheckpoint& rows, const std::string& path);

}  // namespace muster::cli
