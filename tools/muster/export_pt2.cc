#include "tools/muster/export_pt2.h"

#include "muster/pt2/program.h"
#include "muster/pt2/trained_copy.h"

#include "tools/muster/find_run.h"

namespace muster::cli {
namespace {

// Whether the checkpoint's weights are those of this file.
Status check_file(const pt2::File& file, const std::string& path, const ckpt::Snapshot& snapshot) {
  const auto fingerprint = snapshot.meta.find("fingerprint");
  if (fingerprint == snapshot.meta.end() || !fingerprint->is_object()) return {};
  const auto saved = fingerprint->find("model_file");
  if (saved == fingerprint->end() || *saved == file.hash().hex()) return {};
  return Error(ErrorKind::kCheckpoint,
               "'{}' is not the file that this run was begun with: it has changed since; restore "
               "it, or export without --pt2",
               path);
}

}  // namespace

Status write_pt2(FileSystem& files, const track::RunDirectory& run, const ckpt::Snapshot& snapshot,
                 const std::string& path) {
  MUSTER_TRY(const auto job, load_run_job(run, {}, {}, "", files));
  const std::string& original = job.model.file;
  if (original.empty()) {
    return Error(ErrorKind::kUsage,
                 "--pt2: the model of {} is not from a .pt2 file (model.file); leave it out",
                 run_name(run));
  }
  MUSTER_TRY(const auto file, pt2::File::open(original));
  MUSTER_RETURN_IF_ERROR(check_file(file, original, snapshot));
  std::vector<pt2::TrainedTensor> tensors;
  for (const auto& tensor : snapshot.model.tensors()) {
    // num_batches_tracked is there for PyTorch's sake; Muster does not count.
    if (tensor.dtype != ckpt::DType::F32) continue;
    tensors.push_back({tensor.name, tensor.shape, tensor.data});
  }
  return replace_file(files, path, [&](const std::string& aside) -> Status {
    MUSTER_TRY(auto out, files.create(aside));
    MUSTER_RETURN_IF_ERROR(pt2::write_trained_copy(*out, file, original, tensors));
    MUSTER_RETURN_IF_ERROR(out->sync());
    return out->close();
  });
}

}  // namespace muster::cli
