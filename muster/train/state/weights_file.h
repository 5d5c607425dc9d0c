// Finding weights by the name a person gives them.
#pragma once

#include <string>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/ckpt/snapshot.h"

namespace muster::train {

// The snapshot of a run that `which` names: "newest", "best" (or the newest where none was marked),
// or a step. `checkpoints` is the run's snapshot directory.
Result<ckpt::Snapshot> open_snapshot(FileSystem& files, const std::string& checkpoints,
                                     const std::string& which);

// Weights from a .safetensors file, a run directory (its best checkpoint), or the name of a run
// under `runs`.
Result<ckpt::SafetensorsFile> open_weights(FileSystem& files, const std::string& from,
                                           const std::string& runs);

}  // namespace muster::train
