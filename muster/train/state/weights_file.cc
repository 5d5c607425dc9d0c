#include "muster/train/state/weights_file.h"

#include <charconv>

namespace muster::train {

Result<ckpt::Snapshot> open_snapshot(FileSystem& files, const std::string& checkpoints,
                                     const std::string& which) {
  // Reading needs no retention: the numbers below only matter to write().
  ckpt::SnapshotStore store(files, checkpoints, 1, true);
  if (which == "newest" || which == "best") {
    if (which == "best") {
      MUSTER_TRY(auto best, store.load_best());
      if (best) return *std::move(best);
    }
    MUSTER_TRY(auto newest, store.load_newest());
    if (newest) return *std::move(newest);
    return Error(ErrorKind::kCheckpoint, "there is no checkpoint in '{}' yet", checkpoints);
  }
  int64_t step = 0;
  const auto [end, bad] = std::from_chars(which.data(), which.data() + which.size(), step);
  if (bad != std::errc() || end != which.data() + which.size()) {
    return Error(ErrorKind::kUsage, "'{}' is not a checkpoint: say newest, best, or a step", which);
  }
  return store.load(step);
}

Result<ckpt::SafetensorsFile> open_weights(FileSystem& files, const std::string& from,
                                           const std::string& runs) {
  if (from.ends_with(".safetensors")) return ckpt::SafetensorsFile::open(files, from);
  for (const auto& directory : {from, fmt::format("{}/{}", runs, from)}) {
    if (!files.exists(directory + "/checkpoints")) continue;
    MUSTER_TRY(auto snapshot, open_snapshot(files, directory + "/checkpoints", "best"));
    return std::move(snapshot.model);
  }
  return Error(ErrorKind::kCheckpoint,
               "'{}' is neither a .safetensors file nor a run: `muster runs list` shows the runs",
               from);
}

}  // namespace muster::train
