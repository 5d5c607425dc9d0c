// Parquet and Arrow IPC files: a block is a row group, or a record batch. The plugin gives columns;
// here their rows become records.
#include <memory>
#include <utility>
#include <vector>

#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/column_plugin.h"
#include "muster/data/blocks/record.h"

namespace muster::data {
namespace {

using Bytes = std::span<const std::byte>;

// A row. The columns are those of `names`, which is what the Recipe asks for.
class Row final : public Record {
 public:
  Row(std::span<const Column> columns, uint32_t row) : columns_(columns), row_(row) {}

  Status get(std::span<const std::string> /*names*/, std::span<Value> values) const override {
    for (size_t i = 0; i < columns_.size(); ++i) {
      const Column& column = columns_[i];
      const uint64_t begin = row_ == 0 ? 0 : column.ends[row_ - 1];
      const uint64_t count = column.ends[row_] - begin;
      if (column.is_bytes) {
        values[i].kind = Value::Kind::kBytes;
        values[i].bytes = Bytes(column.bytes).subspan(begin, count);
        continue;
      }
      values[i].kind = Value::Kind::kNumbers;
      if (column.floats.empty()) {
        const auto* from = column.numbers.data() + begin;
        values[i].numbers.assign(from, from + count);
      } else {
        const auto* from = column.floats.data() + begin;
        values[i].numbers.assign(from, from + count);
      }
    }
    return {};
  }
  // A column that is missing is found when the file is indexed.
  std::vector<std::string> names() const override { return {}; }

 private:
  const std::span<const Column> columns_;
  const uint32_t row_;
};

class ColumnBlock final : public DecodedBlock {
 public:
  ColumnBlock(std::vector<Column> columns, const Recipe& recipe, Schema schema)
      : columns_(std::move(columns)), recipe_(recipe), schema_(std::move(schema)) {}

  Status read(uint32_t i, std::byte* input, std::byte* target) const override {
    auto status = recipe_.read(Row(columns_, i), schema_, input, target);
    if (!status.ok()) return std::move(status).error().context("row {} of the block", i);
    return {};
  }

  uint64_t memory() const override {
    uint64_t sum = 0;
    for (const Column& column : columns_) sum += column.memory();
    return sum;
  }
  bool needs_bytes() const override { return false; }

 private:
  const std::vector<Column> columns_;
  const Recipe recipe_;
  const Schema schema_;
};

class ColumnFormat final : public BlockFormat {
 public:
  ColumnFormat(Recipe recipe, std::unique_ptr<ColumnFiles> files)
      : recipe_(std::move(recipe)), files_(std::move(files)) {}

  Result<std::vector<Extent>> cut(const ObjectReader& object,
                                  uint64_t /*block_bytes*/) const override {
    auto extents = files_->cut(object);
    if (!extents.ok()) return std::move(extents).error().context("'{}'", object.name);
    return extents;
  }
  bool has_own_blocks() const override { return true; }
  Result<std::string> about(const ObjectReader& object) const override {
    return files_->about(object);
  }
  Result<std::vector<std::string>> notes(const ObjectReader& object) const override {
    return files_->notes(object);
  }
  Status set_about(std::string_view about) override {
    about_ = about;
    return {};
  }

  Result<Schema> schema_of(Bytes block, uint32_t count) const override {
    MUSTER_TRY(const auto columns, files_->read(block, count, about_));
    auto schema = recipe_.schema_of(Row(columns, 0));
    if (!schema.ok()) return std::move(schema).error().context("row 0 of the block");
    return schema;
  }

  Result<std::unique_ptr<DecodedBlock>> decode(Bytes block, uint32_t count,
                                               const Schema& schema) const override {
    MUSTER_TRY(auto columns, files_->read(block, count, about_));
    return std::unique_ptr<DecodedBlock>(
        std::make_unique<ColumnBlock>(std::move(columns), recipe_, schema));
  }
  void add_to(const Schema& schema, Hasher& hasher) const override {
    recipe_.add_to(schema, hasher);
  }

 private:
  const Recipe recipe_;
  const std::unique_ptr<ColumnFiles> files_;
  std::string about_;
};

Result<Recipe> make_recipe(const config::SourceOptions& options) {
  config::ArgReader args(options.args, "the format " + options.format);
  MUSTER_TRY(Recipe recipe,
             Recipe::make(options, args,
                          {.input = {}, .label = "label", .field = "column", .lists = true}));
  MUSTER_RETURN_IF_ERROR(args.finish());
  return recipe;
}

}  // namespace

Result<std::unique_ptr<BlockFormat>> make_parquet(const config::SourceOptions& options) {
  MUSTER_TRY(Recipe recipe, make_recipe(options));
  MUSTER_TRY(const auto* plugin, load_column_plugin("parquet"));
  auto files = plugin->parquet(recipe.names());
  return std::unique_ptr<BlockFormat>(
      std::make_unique<ColumnFormat>(std::move(recipe), std::move(files)));
}

Result<std::unique_ptr<BlockFormat>> make_arrow(const config::SourceOptions& options) {
  MUSTER_TRY(Recipe recipe, make_recipe(options));
  MUSTER_TRY(const auto* plugin, load_column_plugin("arrow"));
  auto files = plugin->arrow(recipe.names());
  return std::unique_ptr<BlockFormat>(
      std::make_unique<ColumnFormat>(std::move(recipe), std::move(files)));
}

}  // namespace muster::data
