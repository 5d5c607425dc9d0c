#include "muster/data/dataset.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "muster/base/check.h"
#include "muster/base/text.h"
#include "muster/config/source.h"
#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/open_blocks.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

Hash128 Dataset::hash() const {
  auto hash = try_hash();
  if (!hash.ok()) check_failed("hashing the data", __FILE__, __LINE__, hash.error().message());
  return *hash;
}

Result<Hash128> Dataset::try_hash() const {
  Hasher hasher;
  const auto number = [&](uint64_t value) { hasher.add(&value, sizeof(value)); };
  const Schema& schema = this->schema();
  const auto shape = [&](const std::vector<int64_t>& dimensions) {
    number(dimensions.size());
    hasher.add(dimensions.data(), dimensions.size() * sizeof(int64_t));
  };
  number(static_cast<uint64_t>(schema.input));
  shape(schema.input_shape);
  number(static_cast<uint64_t>(schema.target));
  shape(schema.target_shape);
  number(static_cast<uint64_t>(schema.classes));
  number(schema.vocabulary.size());
  for (const auto& token : schema.vocabulary) {
    number(token.size());
    hasher.add(token.data(), token.size());
  }
  hasher.add(schema.padding.data(), schema.padding.size() * sizeof(float));
  // Two ids with values have the shape of four without.
  if (schema.has_values) hasher.add("values", 6);
  number(size());
  MUSTER_RETURN_IF_ERROR(try_add_contents(hasher));
  return hasher.finish();
}

Status Dataset::try_add_contents(Hasher& hasher) const {
  add_contents(hasher);
  return {};
}

void Dataset::add_contents(Hasher& hasher) const {
  // One sample, as int64_t so that it is aligned for every type.
  const auto room = [](size_t bytes) { return std::vector<int64_t>(bytes / 8 + 1); };
  auto input = room(schema().input_bytes());
  auto target = room(schema().target_bytes());
  for (uint64_t i = 0; i < size(); ++i) {
    read(i, reinterpret_cast<std::byte*>(input.data()),
         reinterpret_cast<std::byte*>(target.data()));
    hasher.add(input.data(), schema().input_bytes());
    hasher.add(target.data(), schema().target_bytes());
  }
}

Status Dataset::read_all(std::span<const uint64_t> samples, std::byte* inputs, std::byte* targets,
                         const KeepWaiting& /*keep_waiting*/) const {
  const size_t input_bytes = schema().input_bytes();
  const size_t target_bytes = schema().target_bytes();
  for (const uint64_t sample : samples) {
    read(sample, inputs, targets);
    inputs += input_bytes;
    targets += target_bytes;
  }
  return {};
}

Status Dataset::read_or_find_damage(std::span<const uint64_t> samples, std::byte* inputs,
                                    std::byte* targets, const KeepWaiting& keep_waiting,
                                    std::optional<Damage>& damage) const {
  damage.reset();
  return read_all(samples, inputs, targets, keep_waiting);
}

Registry Registry::builtin() {
  Registry registry;
  registry.add("idx", open_idx);
  registry.add("csv", open_csv);
  registry.add("text", open_text);
  registry.add("libsvm", open_libsvm);
  registry.add("ctr", open_ctr);
  registry.add("images", open_image_folder);
  registry.add("lmdb", open_lmdb);
  registry.add("tokens", open_tokens);
  for (auto& [name, factory] : builtin_block_formats()) {
    registry.add_blocks(name, std::move(factory));
  }
  return registry;
}

void Registry::add(std::string format, DatasetFactory factory) {
  const bool added = factories_.emplace(std::move(format), std::move(factory)).second;
  MUSTER_CHECK(added, "a format is registered once");
}

void Registry::add_blocks(std::string format, BlockFactory factory) {
  const bool added = block_factories_.emplace(std::move(format), std::move(factory)).second;
  MUSTER_CHECK(added, "a format is registered once");
}

std::vector<std::string> Registry::formats() const {
  std::vector<std::string> names;
  names.reserve(factories_.size() + block_factories_.size());
  for (const auto& [name, factory] : factories_) names.push_back(name);
  for (const auto& [name, factory] : block_factories_) {
    if (!factories_.contains(name)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

Result<std::unique_ptr<BlockFormat>> Registry::block_format(
    const config::SourceOptions& options) const {
  const auto found = block_factories_.find(options.format);
  const bool meant = !factories_.contains(options.format) || config::is_read_by_blocks(options);
  if (found == block_factories_.end() || !meant) return std::unique_ptr<BlockFormat>();
  return found->second(options);
}

Result<std::unique_ptr<Dataset>> Registry::open(const config::SourceOptions& options) const {
  return open(options, BlockSetup());
}

Result<std::unique_ptr<Dataset>> Registry::open(const config::SourceOptions& options,
                                                const BlockSetup& setup) const {
  MUSTER_TRY(auto blocks, block_format(options));
  if (blocks != nullptr) return open_blocks(options, std::move(blocks), setup);
  const auto found = factories_.find(options.format);
  if (found == factories_.end()) {
    const auto names = formats();
    return Error(ErrorKind::kJob, "there is no data format '{}'{}; the formats are {}",
                 options.format, did_you_mean(options.format, names), join_words(names));
  }
  return found->second(options);
}

Status check_compatible(const Schema& train, const Schema& test) {
  if (train.input != test.input || train.target != test.target || train.has_ids != test.has_ids) {
    return Error(ErrorKind::kData, "the test data has other types than the training data");
  }
  if (train.has_values != test.has_values) {
    return Error(ErrorKind::kData,
                 "the {} data has values of its ids and the {} data has none; set `values` in the "
                 "`args` of both, or of neither",
                 train.has_values ? "training" : "test", train.has_values ? "test" : "training");
  }
  if (train.numbers != test.numbers) {
    return Error(ErrorKind::kData,
                 "a training sample has {} numbers before its ids and a test sample {}; they must "
                 "be the same",
                 train.numbers, test.numbers);
  }
  if (train.input_shape != test.input_shape) {
    return Error(ErrorKind::kData,
                 "a training sample has the shape {} and a test sample {}; they must be the same{}",
                 shape_text(train.input_shape), shape_text(test.input_shape),
                 train.has_ids ? ": set `features` in the `args` of both" : "");
  }
  if (train.target_shape != test.target_shape) {
    return Error(ErrorKind::kData,
                 "a training target has the shape {} and a test target {}; they must be the same",
                 shape_text(train.target_shape), shape_text(test.target_shape));
  }
  if (train.vocabulary != test.vocabulary) {
    return Error(ErrorKind::kData,
                 "the training text has a vocabulary of {} characters and the test text another, "
                 "of {}; take both as parts of one file (option `part`), or use `unit: bytes`",
                 train.vocabulary.size(), test.vocabulary.size());
  }
  if (test.classes > train.classes) {
    return Error(ErrorKind::kData,
                 "the test data has {} classes and the training data only {}; if that is meant, "
                 "set `classes: {}` for the training data",
                 test.classes, train.classes, test.classes);
  }
  return {};
}

}  // namespace muster::data
