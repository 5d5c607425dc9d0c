#include "muster/train/predict_parts.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/data/batch.h"
#include "muster/data/blocks/block_index.h"
#include "muster/data/blocks/column_plugin.h"
#include "muster/parts/cut.h"
#include "muster/train/numerics/fingerprint.h"
#include "muster/train/row_parts.h"

namespace muster::train {
namespace {

// Batches that each thread computes before what they gave is written: so that a part, which may be
// one large block of the data, need not all be in memory.
constexpr size_t kBatchesAtOnce = 4;

std::vector<uint64_t> first_samples(const data::Dataset& dataset) {
  std::vector<uint64_t> firsts;
  if (const auto index = dataset.blocks(); index != nullptr) {
    firsts.reserve(index->blocks.size());
    for (const auto& block : index->blocks) firsts.push_back(block.first);
  }
  return firsts;
}

// Takes the next lines or rows of a part.
using Append = std::function<Status(std::string_view text)>;

// Computes the samples of parts.
class PartWriter {
 public:
  PartWriter(Session& session, const data::Dataset& dataset, const data::TableForm& form,
             const PartOptions& options)
      : session_(session),
        dataset_(dataset),
        form_(form),
        options_(options),
        size_(static_cast<uint64_t>(session.job().eval.batch)),
        pool_(dataset.schema(), size_, *session.plan().memory) {}

  Status write(uint64_t first, uint64_t last, const Append& append) {
    const uint64_t at_once = kBatchesAtOnce * static_cast<uint64_t>(session_.threads()) * size_;
    for (uint64_t at = first; at < last; at += at_once) {
      MUSTER_RETURN_IF_ERROR(write_some(at, std::min(last, at + at_once), append));
    }
    return {};
  }

 private:
  Status write_some(uint64_t first, uint64_t last, const Append& append) {
    std::vector<std::string> texts((last - first + size_ - 1) / size_);
    MUSTER_RETURN_IF_ERROR(
        session_.for_each_net(texts.size(), [&](LaneNet& net, size_t i) -> Status {
          const uint64_t begin = first + i * size_;
          auto batch = pool_.acquire();
          MUSTER_RETURN_IF_ERROR(data::read_range(dataset_, begin, std::min(size_, last - begin),
                                                  *batch, options_.keep_waiting));
          MUSTER_TRY(const auto predictions,
                     predict_batch(net, *batch, session_.schema(), options_.what));
          MUSTER_RETURN_IF_ERROR(check_form(predictions, begin));
          append_rows(predictions, begin, options_.output, texts[i]);
          pool_.give_back(std::move(batch));
          return {};
        }));
    for (const auto& text : texts) MUSTER_RETURN_IF_ERROR(append(text));
    return {};
  }

  // All rows of a Parquet file are alike.
  Status check_form(const Predictions& predictions, uint64_t first) const {
    if (options_.output != OutputFormat::kParquet || form_of(predictions) == form_) return {};
    return Error(ErrorKind::kUsage,
                 "there are {} numbers for sample {}, and another count of them for sample 0, but "
                 "rows of a Parquet file are alike; write .jsonl",
                 predictions.width, first);
  }

  Session& session_;
  const data::Dataset& dataset_;
  const data::TableForm& form_;
  const PartOptions& options_;
  const uint64_t size_;
  data::BatchPool pool_;
};

}  // namespace

Status check_output(OutputFormat format) {
  if (format == OutputFormat::kParquet) {
    MUSTER_RETURN_IF_ERROR(data::load_column_plugin(output_format_name(format)));
  }
  return {};
}

Result<PredictPlan> plan_parts(Session& session, const data::Dataset& dataset,
                               const PartOptions& options) {
  if (dataset.size() == 0) return Error(ErrorKind::kData, "the data has no samples");
  const auto size = static_cast<uint64_t>(session.job().eval.batch);
  data::Batch batch;
  batch.memory = session.plan().memory;
  Predictions first;
  MUSTER_RETURN_IF_ERROR(session.for_each_net(1, [&](LaneNet& net, size_t) -> Status {
    // One sample, unless the model's file excludes that.
    const uint64_t samples = net.check_samples(1).ok() ? 1 : std::min(size, dataset.size());
    MUSTER_RETURN_IF_ERROR(data::read_range(dataset, 0, samples, batch, options.keep_waiting));
    MUSTER_TRY(first, predict_batch(net, batch, session.schema(), options.what));
    return {};
  }));
  MUSTER_TRY(const auto data_hash, dataset.try_hash());
  parts::PartPlan plan{{{"checkpoint", session.arena().counters().step},
                        {"weights", session.arena().weights_hash().hex()},
                        {"data", data_hash.hex()},
                        {"eval.batch", size},
                        {"output", output_format_name(options.output)},
                        {"raw", options.what.raw},
                        {"layer", options.what.layer},
                        {"labels", options.what.labels},
                        {"numerics", take_fingerprint().combined().hex()}},
                       header_of(first, options.output),
                       parts::cut(dataset.size(), size, first_samples(dataset))};
  return PredictPlan{std::move(plan), form_of(first)};
}

Status predict_parts(Session& session, const data::Dataset& dataset,
                     parts::PartsDirectory& directory, const PartOptions& options) {
  MUSTER_RETURN_IF_ERROR(check_output(options.output));
  MUSTER_TRY(const auto planned, plan_parts(session, dataset, options));
  const auto& plan = planned.parts;
  MUSTER_RETURN_IF_ERROR(directory.agree(plan));
  const bool rows = options.output == OutputFormat::kParquet;
  PartWriter writer(session, dataset, planned.form, options);
  while (true) {
    MUSTER_TRY(const auto claim, directory.claim(plan));
    if (!claim) break;
    const uint64_t first = plan.borders[claim->part];
    const uint64_t last = plan.borders[claim->part + 1];
    MUSTER_RETURN_IF_ERROR(directory.finish(*claim, [&](WritableFile& file) -> Status {
      if (!rows) {
        return writer.write(first, last, [&](std::string_view text) { return file.append(text); });
      }
      RowPartWriter part(plan, claim->part, file);
      MUSTER_RETURN_IF_ERROR(
          writer.write(first, last, [&](std::string_view text) { return part.append(text); }));
      return part.finish();
    }));
  }
  if (!rows) return {};
  return directory.assemble(
      [&](WritableFile& file) { return join_rows(directory, plan, planned.form, file); });
}

}  // namespace muster::train
