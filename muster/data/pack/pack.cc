#include "muster/data/pack/pack.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "muster/base/check.h"
#include "muster/base/random.h"
#include "muster/config/node.h"
#include "muster/data/batch.h"
#include "muster/data/blocks/block_index.h"
#include "muster/data/pack/buckets.h"
#include "muster/data/pack/sample_writer.h"
#include "muster/data/pack/stored_sample.h"
#include "muster/data/permutation.h"
#include "muster/data/read_ahead.h"

namespace muster::data {
namespace {

constexpr uint64_t kReadAtOnce = uint64_t{16} << 20;      // bytes of decoded samples
constexpr uint64_t kBlocksAtOnce = uint64_t{4} << 20;     // bytes of the blocks that they are in
constexpr uint64_t kHeldInBuckets = uint64_t{128} << 20;  // bytes
constexpr const char* kPlanName = "pack.json";
constexpr const char* kBucketsName = "buckets";

uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// How many samples are read at a time. The blocks of all of them are in memory then, and may be far
// larger than what is decoded from them: a photo than the small image that it becomes.
uint64_t samples_at_once(const Dataset& dataset) {
  const Schema& schema = dataset.schema();
  uint64_t most = kReadAtOnce / (schema.input_bytes() + schema.target_bytes());
  if (const auto index = dataset.blocks(); index != nullptr) {
    const uint64_t each = divide_up(index->bytes(), index->samples());
    most = std::min(most, kBlocksAtOnce / std::max<uint64_t>(1, each));
  }
  return std::max<uint64_t>(1, most);
}

// Which samples go where.
struct Layout {
  uint64_t samples = 0;
  uint64_t block = 0;  // samples in each block but the last
  uint64_t file = 0;   // samples in each file but the last; whole blocks

  uint64_t files() const { return divide_up(samples, file); }
  uint64_t blocks() const { return divide_up(samples, block); }
  uint64_t in_file(uint64_t number) const { return std::min(file, samples - number * file); }
};

Layout make_layout(uint64_t samples, size_t sample_bytes, const PackOptions& options) {
  constexpr uint64_t kMost = uint64_t{1} << 31;  // places in a bucket are 32 bits
  Layout layout{.samples = samples};
  layout.block = std::clamp<uint64_t>(options.block / sample_bytes, 1, kMost);
  const uint64_t wanted = options.file / (layout.block * sample_bytes);
  layout.file = layout.block * std::clamp<uint64_t>(wanted, 1, kMost / layout.block);
  return layout;
}

class Packer {
 public:
  Packer(const Dataset& dataset, SampleCoder coder, const PackOptions& options, FileSystem& files)
      : dataset_(dataset),
        coder_(std::move(coder)),
        options_(options),
        files_(files),
        sample_bytes_(coder_.form().bytes()),
        at_once_(samples_at_once(dataset)),
        layout_(make_layout(dataset.size(), sample_bytes_, options)) {
    if (options.shuffle) {
      order_.emplace(dataset.size(), RandomStream(options.seed, Purpose::kPack));
    }
  }

  const Layout& layout() const { return layout_; }

  Status run() {
    MUSTER_RETURN_IF_ERROR(claim_directory());
    // Of these a single sample costs a block to read.
    const bool by_blocks = dataset_.blocks() != nullptr;
    SampleBuckets buckets(files_, options_.directory + "/" + kBucketsName, layout_.files(),
                          sample_bytes_, kHeldInBuckets);
    const bool distributes = order_.has_value() && by_blocks;
    if (by_blocks) ahead_.emplace(dataset_, 0, dataset_.size(), at_once_, 1);
    if (distributes && !all_written() && !buckets.complete()) {
      MUSTER_RETURN_IF_ERROR(distribute(buckets));
    }
    for (uint64_t file = 0; file < layout_.files(); ++file) {
      if (files_.exists(path_of(file))) continue;
      if (distributes) {
        MUSTER_TRY(const auto bucket, buckets.load(file, layout_.in_file(file)));
        MUSTER_RETURN_IF_ERROR(write_file(file, &bucket));
        MUSTER_RETURN_IF_ERROR(buckets.drop(file));
      } else {
        MUSTER_RETURN_IF_ERROR(write_file(file, nullptr));
      }
    }
    return buckets.drop_all();
  }

 private:
  std::string path_of(uint64_t file) const {
    const size_t digits = std::max<size_t>(5, std::to_string(layout_.files() - 1).size());
    return fmt::format("{}/{:0{}}.{}", options_.directory, file, digits, options_.format);
  }

  bool all_written() const {
    for (uint64_t file = 0; file < layout_.files(); ++file) {
      if (!files_.exists(path_of(file))) return false;
    }
    return true;
  }

  // What this directory is for: everything that the files in it follow from.
  Result<std::string> plan() const {
    MUSTER_TRY(const auto hash, dataset_.try_hash());
    const nlohmann::ordered_json plan = {{"pack", 1},
                                         {"data", hash.hex()},
                                         {"samples", layout_.samples},
                                         {"format", options_.format},
                                         {"samples_in_block", layout_.block},
                                         {"samples_in_file", layout_.file},
                                         {"shuffle", options_.shuffle},
                                         {"seed", options_.shuffle ? options_.seed : 0}};
    return plan.dump(2) + "\n";
  }

  Status claim_directory() {
    const std::string path = options_.directory + "/" + kPlanName;
    MUSTER_TRY(const std::string plan, this->plan());
    MUSTER_RETURN_IF_ERROR(files_.create_directories(options_.directory));
    if (!files_.exists(path)) {
      MUSTER_TRY(const auto names, files_.list(options_.directory));
      if (!names.empty()) {
        return Error(ErrorKind::kUsage, "'{}' is not empty; name another directory",
                     options_.directory);
      }
      return write_file_atomically(files_, path, plan);
    }
    MUSTER_TRY(const std::string there, files_.read(path));
    if (there == plan) return {};
    return Error(ErrorKind::kUsage,
                 "'{}' was begun with other data or other options; delete it, or name another "
                 "directory",
                 options_.directory);
  }

  uint64_t sample_at(uint64_t position) const { return order_ ? (*order_)(position) : position; }

  Status tell(bool distributes, uint64_t done) const {
    if (!options_.progress ||
        options_.progress(
            {.distributes = distributes, .samples = layout_.samples, .samples_done = done})) {
      return {};
    }
    return Error(ErrorKind::kInterrupted,
                 "ended while the data was packed; the same command "
                 "continues");
  }

  // Calls visit(i, stored) for each of these samples, in their order.
  template <typename Visit>
  Status read(std::span<const uint64_t> samples, const Visit& visit) {
    const Schema& schema = dataset_.schema();
    stored_.resize(sample_bytes_);
    for (size_t begin = 0; begin < samples.size(); begin += at_once_) {
      const auto some = samples.subspan(begin, std::min(at_once_, samples.size() - begin));
      if (ahead_) ahead_->reached(some.front());
      MUSTER_RETURN_IF_ERROR(read_samples(dataset_, some, batch_));
      for (size_t i = 0; i < some.size(); ++i) {
        auto status =
            coder_.encode(batch_.inputs.data() + i * schema.input_bytes(),
                          batch_.targets.data() + i * schema.target_bytes(), stored_.data());
        if (!status.ok()) return std::move(status).error().context("sample {}", some[i]);
        MUSTER_RETURN_IF_ERROR(visit(begin + i, std::span<const std::byte>(stored_)));
      }
    }
    return {};
  }

  Status distribute(SampleBuckets& buckets) {
    MUSTER_RETURN_IF_ERROR(buckets.begin());
    std::vector<uint64_t> samples;
    for (uint64_t first = 0; first < layout_.samples; first += layout_.block) {
      samples.resize(std::min(layout_.block, layout_.samples - first));
      for (size_t i = 0; i < samples.size(); ++i) samples[i] = first + i;
      const auto add = [&](size_t i, std::span<const std::byte> stored) {
        const uint64_t position = order_->position_of(samples[i]);
        return buckets.add(position / layout_.file, static_cast<uint32_t>(position % layout_.file),
                           stored);
      };
      MUSTER_RETURN_IF_ERROR(read(samples, add));
      MUSTER_RETURN_IF_ERROR(tell(true, first + samples.size()));
    }
    return buckets.finish();
  }

  // From the bucket, or else from the data.
  Status write_file(uint64_t file, const LoadedBucket* bucket) {
    return replace_file(files_, path_of(file), [&](const std::string& aside) -> Status {
      MUSTER_TRY(const auto out, files_.create(aside));
      MUSTER_TRY(const auto writer, open_writer(options_.format, *out, coder_.form()));
      for (uint64_t done = 0; done < layout_.in_file(file); done += layout_.block) {
        const uint64_t count = std::min(layout_.block, layout_.in_file(file) - done);
        MUSTER_RETURN_IF_ERROR(bucket != nullptr ? gather(*bucket, done, count)
                                                 : gather(file * layout_.file + done, count));
        MUSTER_RETURN_IF_ERROR(writer->write_block(block_));
        MUSTER_RETURN_IF_ERROR(tell(false, file * layout_.file + done + count));
      }
      MUSTER_RETURN_IF_ERROR(writer->finish());
      MUSTER_RETURN_IF_ERROR(out->sync());
      return out->close();
    });
  }

  Status gather(const LoadedBucket& bucket, uint64_t first, uint64_t count) {
    block_.resize(count * sample_bytes_);
    for (uint64_t i = 0; i < count; ++i) {
      std::ranges::copy(bucket.sample(first + i), block_.data() + i * sample_bytes_);
    }
    return {};
  }

  Status gather(uint64_t first_position, uint64_t count) {
    block_.resize(count * sample_bytes_);
    std::vector<uint64_t> samples(count);
    for (uint64_t i = 0; i < count; ++i) samples[i] = sample_at(first_position + i);
    return read(samples, [&](size_t i, std::span<const std::byte> stored) -> Status {
      std::ranges::copy(stored, block_.data() + i * sample_bytes_);
      return {};
    });
  }

  const Dataset& dataset_;
  const SampleCoder coder_;
  const PackOptions& options_;
  FileSystem& files_;
  const size_t sample_bytes_;
  const uint64_t at_once_;  // samples
  const Layout layout_;
  std::optional<Permutation> order_;  // none: as they are
  std::optional<ReadAhead> ahead_;    // of data that is read by blocks, which is read in its order
  Batch batch_;
  std::vector<std::byte> stored_;  // one sample
  std::vector<std::byte> block_;
};

// The `args` that read samples of this form.
std::string args_for(const SampleForm& form) {
  switch (form.input) {
    case SampleForm::Input::kNumbers:
    case SampleForm::Input::kPixels:
      return fmt::format("{{ input: {}, shape: [{}] }}", kPackedInput,
                         fmt::join(form.input_shape, ", "));
    case SampleForm::Input::kTokens:
      return fmt::format("{{ tokens: {} }}", kPackedInput);
    case SampleForm::Input::kIds:
      return fmt::format("{{ ids: {}, features: {} }}", kPackedInput, form.id_columns());
    case SampleForm::Input::kIdsWithValues:
      return fmt::format("{{ ids: {}, values: {}, features: {} }}", kPackedInput, kPackedValues,
                         form.id_columns());
  }
  return "{}";
}

}  // namespace

Result<Packed> pack(const Dataset& dataset, const config::SourceOptions& source,
                    const PackOptions& options, FileSystem& files) {
  MUSTER_RETURN_IF_ERROR(check_packed_format(options.format));
  MUSTER_TRY(auto coder, SampleCoder::make(dataset.schema(), source));
  const SampleForm form = coder.form();
  Packer packer(dataset, std::move(coder), options, files);
  MUSTER_RETURN_IF_ERROR(packer.run());
  Packed packed{.samples = packer.layout().samples,
                .files = packer.layout().files(),
                .blocks = packer.layout().blocks(),
                .source = {}};
  packed.source.format = options.format;
  packed.source.path = fmt::format("{}/*.{}", options.directory, options.format);
  packed.source.target = form.has_classes ? "class" : "value";
  packed.source.classes = dataset.schema().classes;
  if (form.input == SampleForm::Input::kPixels) {
    packed.source.mean = source.mean;
    packed.source.deviation = source.deviation;
  }
  if (form.input == SampleForm::Input::kTokens) packed.source.context = form.input_shape.front();
  MUSTER_TRY(packed.source.args, config::parse_value(args_for(form), "pack"));
  return packed;
}

}  // namespace muster::data
