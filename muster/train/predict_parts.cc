#include "muster/train/predict_parts.h"

#include <algorithm>
#include <span>

#include "muster/data/batch.h"
#include "muster/data/blocks/block_index.h"
#include "muster/parts/cut.h"
#include "muster/train/numerics/fingerprint.h"

namespace muster::train {
namespace {

// Batches that each thread computes before what they gave is written: so that the lines of a part,
// which may be one large block of the data, need not all be in memory.
constexpr size_t kBatchesAtOnce = 4;

std::vector<uint64_t> first_samples(const data::Dataset& dataset) {
  std::vector<uint64_t> firsts;
  if (const auto index = dataset.blocks(); index != nullptr) {
    firsts.reserve(index->blocks.size());
    for (const auto& block : index->blocks) firsts.push_back(block.first);
  }
  return firsts;
}

// The samples of one part.
class PartWriter {
 public:
  PartWriter(Session& session, const data::Dataset& dataset, const PartOptions& options)
      : session_(session),
        dataset_(dataset),
        options_(options),
        size_(static_cast<uint64_t>(session.job().eval.batch)),
        pool_(dataset.schema(), size_, *session.plan().memory) {}

  Status write(uint64_t first, uint64_t last, WritableFile& file) {
    const uint64_t at_once = kBatchesAtOnce * static_cast<uint64_t>(session_.threads()) * size_;
    for (uint64_t at = first; at < last; at += at_once) {
      MUSTER_RETURN_IF_ERROR(write_some(at, std::min(last, at + at_once), file));
    }
    return {};
  }

 private:
  Status write_some(uint64_t first, uint64_t last, WritableFile& file) {
    std::vector<std::string> texts((last - first + size_ - 1) / size_);
    MUSTER_RETURN_IF_ERROR(
        session_.for_each_net(texts.size(), [&](LaneNet& net, size_t i) -> Status {
          const uint64_t begin = first + i * size_;
          auto batch = pool_.acquire();
          MUSTER_RETURN_IF_ERROR(data::read_range(dataset_, begin, std::min(size_, last - begin),
                                                  *batch, options_.keep_waiting));
          MUSTER_TRY(const auto predictions,
                     predict_batch(net, *batch, session_.schema(), options_.what));
          append_lines(predictions, begin, options_.lines, texts[i]);
          pool_.give_back(std::move(batch));
          return {};
        }));
    for (const auto& text : texts) MUSTER_RETURN_IF_ERROR(file.append(text));
    return {};
  }

  Session& session_;
  const data::Dataset& dataset_;
  const PartOptions& options_;
  const uint64_t size_;
  data::BatchPool pool_;
};

}  // namespace

Result<parts::PartPlan> plan_parts(Session& session, const data::Dataset& dataset,
                                   const PartOptions& options) {
  data::Batch batch;
  batch.memory = session.plan().memory;
  MUSTER_RETURN_IF_ERROR(data::read_range(dataset, 0, 1, batch, options.keep_waiting));
  Predictions first;
  MUSTER_RETURN_IF_ERROR(session.for_each_net(1, [&](LaneNet& net, size_t) -> Status {
    MUSTER_TRY(first, predict_batch(net, batch, session.schema(), options.what));
    return {};
  }));
  const auto size = static_cast<uint64_t>(session.job().eval.batch);
  return parts::PartPlan{{{"checkpoint", session.arena().counters().step},
                          {"weights", session.arena().weights_hash().hex()},
                          {"data", dataset.hash().hex()},
                          {"eval.batch", size},
                          {"lines", lines_name(options.lines)},
                          {"raw", options.what.raw},
                          {"layer", options.what.layer},
                          {"numerics", take_fingerprint().combined().hex()}},
                         header_of(first, options.lines),
                         parts::cut(dataset.size(), size, first_samples(dataset))};
}

Status predict_parts(Session& session, const data::Dataset& dataset,
                     parts::PartsDirectory& directory, const PartOptions& options) {
  MUSTER_TRY(const auto plan, plan_parts(session, dataset, options));
  MUSTER_RETURN_IF_ERROR(directory.agree(plan));
  PartWriter writer(session, dataset, options);
  while (true) {
    MUSTER_TRY(const auto claim, directory.claim(plan));
    if (!claim) return {};
    MUSTER_RETURN_IF_ERROR(directory.finish(*claim, [&](WritableFile& file) {
      return writer.write(plan.borders[claim->part], plan.borders[claim->part + 1], file);
    }));
  }
}

}  // namespace muster::train
