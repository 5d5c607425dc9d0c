// The weights of a checkpoint as a copy of the .pt2 that the model came from (model.file), for
// `muster export --pt2`.
#pragma once

#include <string>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/ckpt/snapshot.h"
#include "muster/track/run_directory.h"

namespace muster::cli {

// Errors: the run's job has no model.file; the file is not the one that was trained.
Status write_pt2(FileSystem& files, const track::RunDirectory& run, const ckpt::Snapshot& snapshot,
                 const std::string& path);

}  // namespace muster::cli
