// JSON lines: each line an object whose entries are the fields of a record. Empty lines are
// skipped.
#include <memory>
#include <utility>
#include <vector>

#include "muster/base/text.h"
#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/json_fields.h"
#include "muster/data/blocks/lines.h"
#include "muster/data/blocks/record.h"
#include "muster/data/blocks/record_block.h"

namespace muster::data {
namespace {

using Bytes = std::span<const std::byte>;

class JsonLine final : public Record {
 public:
  explicit JsonLine(Bytes line) : text_(reinterpret_cast<const char*>(line.data()), line.size()) {}
  Status get(std::span<const std::string> names, std::span<Value> values) const override {
    return read_json_fields(text_, names, values);
  }
  std::vector<std::string> names() const override { return json_keys(text_); }

 private:
  std::string_view text_;
};

bool is_sample(std::string_view line) { return !trim(line).empty(); }

std::vector<Bytes> split_lines(std::string_view text) {
  std::vector<Bytes> lines;
  for_each_line(text, [&](std::string_view line) {
    if (is_sample(line)) lines.push_back(std::as_bytes(std::span(line)));
  });
  return lines;
}

class JsonlFormat final : public BlockFormat {
 public:
  explicit JsonlFormat(Recipe recipe) : recipe_(std::move(recipe)) {}

  Result<std::vector<Extent>> cut(const ObjectReader& object, uint64_t block_bytes) const override {
    return cut_lines(object, block_bytes, is_sample);
  }

  Result<Schema> schema_of(Bytes block, uint32_t count) const override {
    MUSTER_TRY(const BlockText text, block_text(block));
    const auto lines = split_lines(text.text);
    MUSTER_RETURN_IF_ERROR(check_count(lines.size(), count));
    auto schema = recipe_.schema_of(JsonLine(lines.front()));
    if (!schema.ok()) return std::move(schema).error().context("sample 0 of the block");
    return schema;
  }

  Result<std::unique_ptr<DecodedBlock>> decode(Bytes block, uint32_t count,
                                               const Schema& schema) const override {
    MUSTER_TRY(BlockText text, block_text(block));
    auto lines = split_lines(text.text);
    MUSTER_RETURN_IF_ERROR(check_count(lines.size(), count));
    const auto make_record = [](Bytes line) { return JsonLine(line); };
    return std::unique_ptr<DecodedBlock>(std::make_unique<RecordBlock<decltype(make_record)>>(
        std::move(lines), std::move(text.owned), recipe_, schema, make_record));
  }

  void add_to(const Schema& schema, Hasher& hasher) const override {
    recipe_.add_to(schema, hasher);
  }

 private:
  const Recipe recipe_;
};

}  // namespace

Result<std::unique_ptr<BlockFormat>> make_jsonl(const config::SourceOptions& options) {
  config::ArgReader args(options.args, "the format jsonl");
  MUSTER_TRY(
      Recipe recipe,
      Recipe::make(options, args, {.input = {}, .label = "label", .field = "key", .lists = true}));
  MUSTER_RETURN_IF_ERROR(args.finish());
  return std::unique_ptr<BlockFormat>(std::make_unique<JsonlFormat>(std::move(recipe)));
}

}  // namespace muster::data
