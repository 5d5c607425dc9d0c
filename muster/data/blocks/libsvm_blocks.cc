// The format libsvm (formats.h) by ranges of lines.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/lines.h"
#include "muster/data/blocks/record_block.h"
#include "muster/data/formats.h"
#include "muster/data/libsvm_lines.h"

namespace muster::data {
namespace {

class LibsvmBlock final : public DecodedBlock {
 public:
  explicit LibsvmBlock(LibsvmLines lines)
      : columns_(static_cast<size_t>(lines.columns())),
        has_values_(lines.schema().has_values),
        ids_(lines.take_ids()),
        values_(lines.take_values()),
        starts_(lines.take_starts()),
        clicked_(lines.take_clicked()) {}

  Status read(uint32_t i, std::byte* input, std::byte* target) const override {
    auto* to = reinterpret_cast<int64_t*>(input);
    int64_t* end = to + columns_;
    if (has_values_) {
      put_values(std::span(values_).subspan(starts_[i], starts_[i + 1] - starts_[i]),
                 {end, columns_});
    }
    to = std::copy(ids_.data() + starts_[i], ids_.data() + starts_[i + 1], to);
    std::fill(to, end, -1);
    *reinterpret_cast<int64_t*>(target) = clicked_[i];
    return {};
  }

  uint64_t memory() const override {
    return (ids_.capacity() + starts_.capacity()) * sizeof(int64_t) +
           values_.capacity() * sizeof(float) + clicked_.capacity();
  }
  bool needs_bytes() const override { return false; }

 private:
  const size_t columns_;  // of ids
  const bool has_values_;
  const std::vector<int64_t> ids_;
  const std::vector<float> values_;
  const std::vector<uint64_t> starts_;
  const std::vector<uint8_t> clicked_;
};

class LibsvmFormat final : public BlockFormat {
 public:
  explicit LibsvmFormat(const LibsvmOptions& options) : options_(options) {}

  Result<std::vector<Extent>> cut(const ObjectReader& object, uint64_t block_bytes) const override {
    return cut_lines(object, block_bytes, LibsvmLines::is_sample);
  }

  Result<Schema> schema_of(std::span<const std::byte> /*block*/,
                           uint32_t /*count*/) const override {
    return LibsvmLines("", options_).schema();
  }

  Result<std::unique_ptr<DecodedBlock>> decode(std::span<const std::byte> block, uint32_t count,
                                               const Schema& /*schema*/) const override {
    MUSTER_TRY(const BlockText text, block_text(block));
    LibsvmLines lines("the block,", options_);
    MUSTER_RETURN_IF_ERROR(lines.read(text.text));
    MUSTER_RETURN_IF_ERROR(check_count(lines.rows(), count));
    return std::unique_ptr<DecodedBlock>(std::make_unique<LibsvmBlock>(std::move(lines)));
  }

  // All that it reads by is in the schema.
  void add_to(const Schema& /*schema*/, Hasher& /*hasher*/) const override {}

 private:
  const LibsvmOptions options_;
};

}  // namespace

Result<std::unique_ptr<BlockFormat>> make_libsvm_blocks(const config::SourceOptions& options) {
  MUSTER_TRY(const LibsvmOptions found, LibsvmLines::options_of(options));
  if (found.features == 0) {
    return Error(ErrorKind::kJob,
                 "libsvm data that is read by blocks needs `args: {{ features: N }}`, the most ids "
                 "that a line has");
  }
  return std::unique_ptr<BlockFormat>(std::make_unique<LibsvmFormat>(found));
}

}  // namespace muster::data
