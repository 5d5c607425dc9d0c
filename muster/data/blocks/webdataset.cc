// WebDataset: a tar archive in which neighbouring files with the same name up to the first dot of
// the base name are one sample; what follows the dot says what a file is: jpg, png, cls, json.
#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/text.h"
#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/json_fields.h"
#include "muster/data/blocks/object_window.h"
#include "muster/data/blocks/record.h"
#include "muster/data/blocks/record_block.h"
#include "muster/data/blocks/tar_reader.h"

namespace muster::data {
namespace {

using Bytes = std::span<const std::byte>;

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// More are taken for an archive that is no WebDataset.
constexpr size_t kMostParts = 1000;

struct PartName {
  std::string sample;
  std::string part;  // lower case; empty: the file belongs to no sample
};

PartName split_name(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base) return {};
  PartName result{std::string(name.substr(0, dot)), std::string(name.substr(dot + 1))};
  // Of ASCII only, whatever the locale.
  for (char& c : result.part) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

struct Part {
  std::string name;
  Bytes bytes;
};

// One sample's parts.
class Parts final : public Record {
 public:
  explicit Parts(std::span<const Part> parts) : parts_(parts) {}

  Status get(std::span<const std::string> names, std::span<Value> values) const override {
    for (size_t i = 0; i < names.size(); ++i) MUSTER_RETURN_IF_ERROR(find(names[i], values[i]));
    return {};
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> result;
    for (const auto& part : parts_) result.push_back(part.name);
    return result;
  }

 private:
  // "jpg", "jpg;png" (the first that is there), or "json:key".
  Status find(const std::string& name, Value& value) const {
    for (const auto& choice : split(name, ';')) {
      const size_t colon = choice.find(':');
      const auto part = std::ranges::find(parts_, choice.substr(0, colon), &Part::name);
      if (part == parts_.end()) continue;
      if (colon != std::string::npos) {
        const std::string key = choice.substr(colon + 1);
        auto status = read_json_fields(text_of(part->bytes), {&key, 1}, {&value, 1});
        if (!status.ok()) return std::move(status).error().context("part '{}'", part->name);
        if (value.kind != Value::Kind::kNumbers) {
          const auto keys = json_keys(text_of(part->bytes));
          return Error(ErrorKind::kData, "part '{}' has no number '{}'{}", part->name, key,
                       did_you_mean(key, keys));
        }
        return {};
      }
      return take(*part, value);
    }
    return {};
  }

  static Status take(const Part& part, Value& value) {
    const std::string_view kind = std::string_view(part.name).substr(part.name.rfind('.') + 1);
    if (kind != "cls" && kind != "cls2" && kind != "index" && kind != "inx" && kind != "id") {
      value.kind = Value::Kind::kBytes;
      value.bytes = part.bytes;
      return {};
    }
    const auto text = trim(text_of(part.bytes));
    int64_t number = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc{} || end != text.data() + text.size()) {
      return Error(ErrorKind::kData, "part '{}' is '{}', not a whole number", part.name,
                   text.substr(0, 40));
    }
    value.kind = Value::Kind::kNumbers;
    value.numbers = {static_cast<double>(number)};
    return {};
  }

  std::span<const Part> parts_;
};

// The samples of a block: all parts, and where each sample's begin.
struct Samples {
  std::vector<Part> parts;
  std::vector<size_t> starts;
  std::vector<std::string> names;

  Parts operator[](size_t i) const {
    const size_t end = i + 1 < starts.size() ? starts[i + 1] : parts.size();
    return Parts(std::span(parts).subspan(starts[i], end - starts[i]));
  }
};

// Calls visit(entry, name, starts a sample) for each file that belongs to one.
template <typename Visit>
Status for_each_part(TarReader& tar, Visit visit) {
  TarEntry entry;
  std::string sample;
  std::vector<std::string> seen;
  while (true) {
    MUSTER_TRY(const bool more, tar.next(entry));
    if (!more) return {};
    const PartName name = split_name(entry.name);
    if (name.part.empty()) continue;
    const bool starts = seen.empty() || name.sample != sample;
    if (starts) seen.clear();
    if (seen.size() == kMostParts) {
      return Error(ErrorKind::kData,
                   "byte {} of the tar archive: the sample '{}' has more than {} parts; files of "
                   "one sample have the same name up to the first dot",
                   with_commas(entry.begin), name.sample, kMostParts);
    }
    if (std::ranges::find(seen, name.part) != seen.end()) {
      return Error(ErrorKind::kData,
                   "byte {} of the tar archive: the sample '{}' has two parts '{}'",
                   with_commas(entry.begin), name.sample, name.part);
    }
    seen.push_back(name.part);
    sample = name.sample;
    visit(entry, name, starts);
  }
}

Result<Samples> split_samples(Bytes block) {
  Samples samples;
  TarReader tar(
      block.size(),
      [&](uint64_t offset, size_t length) { return Result<Bytes>(block.subspan(offset, length)); },
      false);
  MUSTER_RETURN_IF_ERROR(
      for_each_part(tar, [&](const TarEntry& entry, const PartName& name, bool starts) {
        if (starts) {
          samples.starts.push_back(samples.parts.size());
          samples.names.push_back(name.sample);
        }
        samples.parts.push_back({name.part, block.subspan(entry.data, entry.size)});
      }));
  return samples;
}

class TarBlock final : public DecodedBlock {
 public:
  TarBlock(Samples samples, const Recipe& recipe, Schema schema)
      : samples_(std::move(samples)), recipe_(recipe), schema_(std::move(schema)) {}

  Status read(uint32_t i, std::byte* input, std::byte* target) const override {
    auto status = recipe_.read(samples_[i], schema_, input, target);
    if (!status.ok()) {
      return std::move(status).error().context("sample {} of the block ('{}')", i,
                                               samples_.names[i]);
    }
    return {};
  }

  uint64_t memory() const override {
    uint64_t total =
        samples_.parts.capacity() * sizeof(Part) + samples_.starts.capacity() * sizeof(size_t);
    for (const auto& name : samples_.names) total += sizeof(std::string) + name.capacity();
    return total;
  }

 private:
  const Samples samples_;
  const Recipe recipe_;
  const Schema schema_;
};

class WebDatasetFormat final : public BlockFormat {
 public:
  explicit WebDatasetFormat(Recipe recipe) : recipe_(std::move(recipe)) {}

  Result<std::vector<Extent>> cut(const ObjectReader& object, uint64_t block_bytes) const override {
    ObjectWindow window(object);
    TarReader tar(
        object.size, [&](uint64_t offset, size_t length) { return window.at(offset, length); },
        true);
    Cutter cutter(block_bytes);
    uint64_t begin = 0;
    uint64_t end = 0;
    auto status = for_each_part(tar, [&](const TarEntry& entry, const PartName&, bool starts) {
      if (starts) {
        if (end > 0) cutter.add(begin, end);
        begin = entry.begin;
      }
      end = entry.end;
    });
    if (!status.ok()) return std::move(status).error().context("'{}'", object.name);
    if (end > 0) cutter.add(begin, end);
    return std::move(cutter).finish();
  }

  Result<Schema> schema_of(Bytes block, uint32_t count) const override {
    MUSTER_TRY(const Samples samples, split_samples(block));
    MUSTER_RETURN_IF_ERROR(check_count(samples.starts.size(), count));
    auto schema = recipe_.schema_of(samples[0]);
    if (!schema.ok()) {
      return std::move(schema).error().context("sample 0 of the block ('{}')", samples.names[0]);
    }
    return schema;
  }

  Result<std::unique_ptr<DecodedBlock>> decode(Bytes block, uint32_t count,
                                               const Schema& schema) const override {
    MUSTER_TRY(Samples samples, split_samples(block));
    MUSTER_RETURN_IF_ERROR(check_count(samples.starts.size(), count));
    return std::unique_ptr<DecodedBlock>(
        std::make_unique<TarBlock>(std::move(samples), recipe_, schema));
  }

  void add_to(const Schema& schema, Hasher& hasher) const override {
    recipe_.add_to(schema, hasher);
  }

 private:
  const Recipe recipe_;
};

}  // namespace

Result<std::unique_ptr<BlockFormat>> make_webdataset(const config::SourceOptions& options) {
  config::ArgReader args(options.args, "the format webdataset");
  MUSTER_TRY(
      Recipe recipe,
      Recipe::make(options, args, {.input = {"jpg;png;jpeg"}, .label = "cls", .field = "part"}));
  MUSTER_RETURN_IF_ERROR(args.finish());
  return std::unique_ptr<BlockFormat>(std::make_unique<WebDatasetFormat>(std::move(recipe)));
}

}  // namespace muster::data
