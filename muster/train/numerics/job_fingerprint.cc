#include "muster/train/numerics/job_fingerprint.h"

#include <array>
#include <vector>

#include "muster/data/batch.h"
#include "muster/exact/block_layout.h"

namespace muster::train {

Result<Hash128> hash_gradients(LaneNet& net, GradientSum& sum, Arena& arena,
                               const data::Dataset& dataset, uint64_t samples, Memory& memory,
                               const data::KeepWaiting& keep_waiting) {
  std::vector<uint64_t> first(samples);
  // A lane may be larger than the data: then it uses samples of several passes.
  for (uint64_t i = 0; i < samples; ++i) first[i] = i % dataset.size();
  data::Batch batch;
  batch.memory = &memory;
  MUSTER_RETURN_IF_ERROR(data::read_samples(dataset, first, batch, keep_waiting));

  // As floats: fixed-point sums would need scales, which only training finds.
  sum.begin(GradientSum::Mode::kNative, arena.exponents(), std::array{0});
  const auto trained = net.train(/*step=*/0, /*lane=*/0, batch, /*weight=*/1);
  MUSTER_RETURN_IF_ERROR(net.lanes_over(0));
  MUSTER_TRY(const double loss, trained);
  sum.flush();
  Hasher hasher;
  hasher.add(&loss, sizeof(loss));
  std::vector<float> scratch(exact::kBlockSize);
  for (size_t block = 0; block < arena.layout().blocks().size(); ++block) {
    const auto values = sum.read(block, scratch);
    hasher.add(values.data(), values.size_bytes());
  }
  return hasher.finish();
}

nlohmann::json to_json(const JobFingerprint& fingerprint) {
  auto object = nlohmann::json::object();
  for (const auto& [name, hash] : fingerprint.parts()) {
    // Few jobs have it; and those without wrote no such part before there was one.
    if (name == "model_file" && hash->empty()) continue;
    object[std::string(name)] = *hash;
  }
  return object;
}

JobFingerprint fingerprint_from(const nlohmann::json& object) {
  JobFingerprint fingerprint;
  if (!object.is_object()) return fingerprint;
  for (const auto& [name, hash] : fingerprint.parts()) {
    const auto found = object.find(std::string(name));
    if (found != object.end() && found->is_string()) *hash = found->get<std::string>();
  }
  return fingerprint;
}

Status check_model_file(const std::string& own, const nlohmann::json& meta) {
  const auto found = meta.find("fingerprint");
  if (found == meta.end()) return {};
  const auto saved = fingerprint_from(*found);
  auto present = saved;
  present.model_file = own;
  const auto why = why_not_resume(present, saved, {});
  if (why.empty()) return {};
  return Error(ErrorKind::kCheckpoint, "{}", why);
}

Result<std::string> check_resumed(const JobFingerprint& own, const nlohmann::json& meta,
                                  Accepted accepted) {
  const auto found = meta.find("fingerprint");
  if (found == meta.end()) {
    return std::string(
        "was written without a fingerprint: whether numerics and data are still the same is not "
        "known");
  }
  const auto saved = fingerprint_from(*found);
  if (const auto why = why_not_resume(own, saved, accepted); !why.empty()) {
    return Error(ErrorKind::kCheckpoint, "{}", why);
  }
  const FingerprintDifference difference(own, saved);
  if (!difference.any()) return std::string();
  return fmt::format(
      "this run now differs from its checkpoint in {}, which was accepted: no other run of the job "
      "will have its bits",
      difference.text());
}

}  // namespace muster::train
