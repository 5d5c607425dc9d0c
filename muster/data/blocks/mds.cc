// MosaicML's MDS, version 2. A shard is: the number of samples (4 bytes), where each begins and the
// last one ends (4 each, from the start of the file), a JSON text that describes the columns, then
// the samples. A sample is: the sizes (4 each) of its columns of variable size, then the columns.
#include <charconv>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/base/check.h"
#include "muster/base/text.h"
#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/object_window.h"
#include "muster/data/blocks/record.h"
#include "muster/data/blocks/record_block.h"

namespace muster::data {
namespace {

using Bytes = std::span<const std::byte>;
using Json = nlohmann::json;

constexpr uint64_t kMostConfig = 1 << 20;

enum class Kind : uint8_t { kBytes, kText, kUnsigned, kSigned, kFloat, kOther };

struct Column {
  std::string name;
  std::string encoding;
  Kind kind = Kind::kOther;
  size_t width = 1;   // of one number
  uint64_t size = 0;  // of the column; 0: variable
};

template <typename T>
T load(Bytes bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

// "int16", "float32" and so on.
bool number_type(std::string_view name, Column& column) {
  for (const auto& [prefix, kind] :
       {std::pair{"uint", Kind::kUnsigned}, {"int", Kind::kSigned}, {"float", Kind::kFloat}}) {
    if (!name.starts_with(prefix)) continue;
    const auto bits = name.substr(std::strlen(prefix));
    column.kind = kind;
    column.width = bits == "8" ? 1 : bits == "16" ? 2 : bits == "32" ? 4 : bits == "64" ? 8 : 0;
    return column.width != 0 && (kind != Kind::kFloat || column.width >= 4);
  }
  return false;
}

void find_kind(Column& column) {
  const std::string_view encoding = column.encoding;
  if (encoding == "bytes" || encoding == "jpeg" || encoding == "png") {
    column.kind = Kind::kBytes;
  } else if (encoding == "str_int" || encoding == "str_float" || encoding == "str") {
    column.kind = Kind::kText;
  } else if (encoding == "int") {
    column.kind = Kind::kSigned;
    column.width = 8;
  } else if (encoding.starts_with("ndarray:") && column.size > 0) {  // of one type and shape
    const auto type = split(encoding, ':')[1];
    if (type == "uint8") {
      column.kind = Kind::kBytes;  // pixels
    } else if (!number_type(type, column)) {
      column.kind = Kind::kOther;
    }
  } else if (!number_type(encoding, column)) {
    column.kind = Kind::kOther;
  }
}

Result<std::vector<Column>> read_columns(std::string_view text) {
  const auto wrong = [] {
    return Error(ErrorKind::kData, "the shard does not describe its columns as MDS 2 does");
  };
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return wrong();
  for (const char* key : {"column_names", "column_encodings", "column_sizes"}) {
    if (!json.contains(key) || !json[key].is_array()) return wrong();
  }
  const Json& names = json["column_names"];
  const Json& encodings = json["column_encodings"];
  const Json& sizes = json["column_sizes"];
  if (names.empty() || names.size() != encodings.size() || names.size() != sizes.size()) {
    return wrong();
  }
  std::vector<Column> columns(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].is_string() || !encodings[i].is_string()) return wrong();
    if (!sizes[i].is_null() && !sizes[i].is_number_unsigned()) return wrong();
    columns[i].name = names[i].get<std::string>();
    columns[i].encoding = encodings[i].get<std::string>();
    columns[i].size = sizes[i].is_null() ? 0 : sizes[i].get<uint64_t>();
    find_kind(columns[i]);
  }
  return columns;
}

// Takes the sizes of a sample's columns off the front of `bytes`; false: they do not fit.
bool take_sizes(const std::vector<Column>& columns, Bytes& bytes, std::vector<uint64_t>& sizes) {
  sizes.clear();
  uint64_t total = 0;
  for (const auto& column : columns) {
    uint64_t size = column.size;
    if (size == 0) {
      if (bytes.size() < 4) return false;
      size = load<uint32_t>(bytes);
      bytes = bytes.subspan(4);
    }
    sizes.push_back(size);
    if (__builtin_add_overflow(total, size, &total)) return false;
  }
  return total <= bytes.size();
}

class MdsRecord final : public Record {
 public:
  MdsRecord(const std::vector<Column>& columns, Bytes sample)
      : columns_(columns), sample_(sample) {}

  Status get(std::span<const std::string> names, std::span<Value> values) const override {
    Bytes left = sample_;
    std::vector<uint64_t> sizes;
    MUSTER_CHECK(take_sizes(columns_, left, sizes), "samples were measured when they were split");
    for (size_t c = 0; c < columns_.size(); ++c) {
      const Bytes contents = left.first(sizes[c]);
      left = left.subspan(sizes[c]);
      for (size_t i = 0; i < names.size(); ++i) {
        if (names[i] == columns_[c].name) {
          MUSTER_RETURN_IF_ERROR(read_column(columns_[c], contents, values[i]));
        }
      }
    }
    return {};
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> result;
    for (const auto& column : columns_) result.push_back(column.name);
    return result;
  }

 private:
  static double number(const Column& column, Bytes at) {
    switch (column.kind) {
      case Kind::kFloat:
        return column.width == 4 ? load<float>(at) : load<double>(at);
      case Kind::kUnsigned:
        return column.width == 1   ? load<uint8_t>(at)
               : column.width == 2 ? load<uint16_t>(at)
               : column.width == 4 ? load<uint32_t>(at)
                                   : static_cast<double>(load<uint64_t>(at));
      default:
        return column.width == 1   ? load<int8_t>(at)
               : column.width == 2 ? load<int16_t>(at)
               : column.width == 4 ? load<int32_t>(at)
                                   : static_cast<double>(load<int64_t>(at));
    }
  }

  static Status read_column(const Column& column, Bytes contents, Value& value) {
    const auto wrong = [&](std::string_view why) {
      return Error(ErrorKind::kData, "column '{}' ({}) {}", column.name, column.encoding, why);
    };
    value.kind = Value::Kind::kNumbers;
    switch (column.kind) {
      case Kind::kBytes:
        value.kind = Value::Kind::kBytes;
        value.bytes = contents;
        return {};
      case Kind::kText: {
        const auto* text = reinterpret_cast<const char*>(contents.data());
        double parsed = 0;
        const auto [end, code] = std::from_chars(text, text + contents.size(), parsed);
        if (code != std::errc{} || end != text + contents.size()) return wrong("is not a number");
        value.numbers = {parsed};
        return {};
      }
      case Kind::kOther:
        return wrong(
            "has an encoding that cannot be read; write it as jpeg, png, bytes, a number or "
            "an ndarray with type and shape");
      default:
        break;
    }
    if (contents.size() % column.width != 0) return wrong("is cut short");
    value.numbers.reserve(contents.size() / column.width);
    for (size_t at = 0; at < contents.size(); at += column.width) {
      value.numbers.push_back(number(column, contents.subspan(at)));
    }
    return {};
  }

  const std::vector<Column>& columns_;
  Bytes sample_;
};

class MdsFormat final : public BlockFormat {
 public:
  explicit MdsFormat(Recipe recipe) : recipe_(std::move(recipe)) {}

  Result<std::vector<Extent>> cut(const ObjectReader& object, uint64_t block_bytes) const override {
    auto extents = cut_samples(object, block_bytes);
    if (!extents.ok()) return std::move(extents).error().context("'{}'", object.name);
    return extents;
  }

  // The part of the shard's text that blocks are read by, with its entries in one order.
  Result<std::string> about(const ObjectReader& object) const override {
    auto text = read_about(object);
    if (!text.ok()) return std::move(text).error().context("'{}'", object.name);
    return text;
  }

  Status set_about(std::string_view about) override {
    MUSTER_TRY(auto columns, read_columns(about));
    columns_ = std::make_shared<const std::vector<Column>>(std::move(columns));
    return {};
  }

  Result<Schema> schema_of(Bytes block, uint32_t count) const override {
    MUSTER_TRY(const auto samples, split_samples(block, count));
    auto schema = recipe_.schema_of(MdsRecord(*columns_, samples.front()));
    if (!schema.ok()) return std::move(schema).error().context("sample 0 of the block");
    return schema;
  }

  Result<std::unique_ptr<DecodedBlock>> decode(Bytes block, uint32_t count,
                                               const Schema& schema) const override {
    MUSTER_TRY(auto samples, split_samples(block, count));
    const auto make_record = [columns = columns_](Bytes bytes) {
      return MdsRecord(*columns, bytes);
    };
    return std::unique_ptr<DecodedBlock>(std::make_unique<RecordBlock<decltype(make_record)>>(
        std::move(samples), std::vector<std::byte>(), recipe_, schema, make_record));
  }

  void add_to(const Schema& schema, Hasher& hasher) const override {
    recipe_.add_to(schema, hasher);
  }

 private:
  static Error damaged(std::string_view why) {
    return Error(ErrorKind::kData, "not an MDS shard: {}", why);
  }

  // How many samples; their places follow.
  static Result<uint32_t> read_head(ObjectWindow& window) {
    if (window.size() < 8) return damaged("it is too short");
    MUSTER_TRY(const Bytes head, window.at(0, 8));
    if (load<uint32_t>(head) == 0xfd2fb528) {
      return damaged("it is compressed (zstd); unpack it, or write it without compression");
    }
    const auto count = load<uint32_t>(head);
    if (count == 0 || uint64_t{4} * count + 8 > window.size()) {
      return damaged("its number of samples does not fit its size");
    }
    return count;
  }

  static Result<std::vector<Extent>> cut_samples(const ObjectReader& object, uint64_t block_bytes) {
    ObjectWindow window(object);
    MUSTER_TRY(const uint32_t count, read_head(window));
    MUSTER_TRY(const Bytes table, window.at(4, 4 * (size_t{count} + 1)));
    Cutter cutter(block_bytes);
    uint64_t begin = load<uint32_t>(table);
    if (begin < 8 + uint64_t{4} * count) return damaged("its samples overlap its head");
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t end = load<uint32_t>(table.subspan(4 * (size_t{i} + 1)));
      if (end <= begin || end > object.size) {
        return damaged(fmt::format("sample {} does not lie within it; fetch it again", i));
      }
      cutter.add(begin, end);
      begin = end;
    }
    if (begin != object.size) return damaged("it continues after its last sample");
    return std::move(cutter).finish();
  }

  static Result<std::string> read_about(const ObjectReader& object) {
    ObjectWindow window(object);
    MUSTER_TRY(const uint32_t count, read_head(window));
    MUSTER_TRY(const Bytes first, window.at(4, 4));
    const uint64_t end = load<uint32_t>(first);
    const uint64_t begin = 8 + uint64_t{4} * count;
    if (end < begin || end > object.size || end - begin > kMostConfig) {
      return damaged("its head is damaged");
    }
    MUSTER_TRY(const Bytes config, window.at(begin, end - begin));
    const std::string_view text(reinterpret_cast<const char*>(config.data()), config.size());
    if (auto columns = read_columns(text); !columns.ok()) return std::move(columns).error();
    const Json json = Json::parse(text, nullptr, false);
    const Json kept = {{"column_names", json["column_names"]},
                       {"column_encodings", json["column_encodings"]},
                       {"column_sizes", json["column_sizes"]}};
    return kept.dump();
  }

  Result<std::vector<Bytes>> split_samples(Bytes block, uint32_t count) const {
    MUSTER_CHECK(columns_ != nullptr, "set_about() comes before blocks are read");
    std::vector<Bytes> samples;
    std::vector<uint64_t> sizes;
    while (!block.empty()) {
      Bytes left = block;
      if (!take_sizes(*columns_, left, sizes)) {
        return Error(ErrorKind::kData, "sample {} of the block is cut short; fetch the shard again",
                     samples.size());
      }
      uint64_t length = block.size() - left.size();
      for (const uint64_t size : sizes) length += size;
      if (length == 0) return Error(ErrorKind::kData, "the samples of the block are empty");
      samples.push_back(block.first(length));
      block = block.subspan(length);
    }
    MUSTER_RETURN_IF_ERROR(check_count(samples.size(), count));
    return samples;
  }

  const Recipe recipe_;
  std::shared_ptr<const std::vector<Column>> columns_;  // null: set_about() was not called
};

}  // namespace

Result<std::unique_ptr<BlockFormat>> make_mds(const config::SourceOptions& options) {
  config::ArgReader args(options.args, "the format mds");
  MUSTER_TRY(Recipe recipe,
             Recipe::make(options, args,
                          {.input = {}, .label = "label", .field = "column", .lists = true}));
  MUSTER_RETURN_IF_ERROR(args.finish());
  return std::unique_ptr<BlockFormat>(std::make_unique<MdsFormat>(std::move(recipe)));
}

}  // namespace muster::data
