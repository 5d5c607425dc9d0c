// Tables of results as Parquet (table_writer.h). Every setting that changes bytes is fixed here or
// is libparquet's default: nothing depends on the time, the machine or the version of Muster.
#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include <cstring>
#include <limits>

#include "muster/data/arrow/arrow_support.h"
#include "muster/data/arrow/files.h"

namespace muster::data {
namespace {

using Bytes = std::span<const std::byte>;

// In the form that readers of Parquet parse: NAME version X.Y.Z (build ...). The version is that of
// these settings.
constexpr const char* kCreatedBy = "muster version 1.0.0 (build predict)";
constexpr int kZstdLevel = 3;

std::shared_ptr<arrow::DataType> type_of(const TableColumn& column) {
  const bool whole = column.type == TableColumn::Type::kInt64;
  std::shared_ptr<arrow::DataType> value = whole ? arrow::int64() : arrow::float32();
  if (column.width == 0) return value;
  return arrow::fixed_size_list(arrow::field("element", std::move(value), /*nullable=*/false),
                                static_cast<int32_t>(column.width));
}

class ParquetTable final : public TableWriter {
 public:
  ParquetTable(WritableFile& file, const TableForm& form)
      : form_(form), stream_(std::make_shared<FileStream>(file)) {
    arrow::FieldVector fields;
    for (const auto& column : form_.columns) {
      fields.push_back(arrow::field(column.name, type_of(column), /*nullable=*/false));
    }
    schema_ = arrow::schema(std::move(fields));
  }

  Status open() {
    parquet::WriterProperties::Builder properties;
    // Most values are floats, which hardly repeat.
    properties.disable_dictionary()
        ->compression(parquet::Compression::ZSTD)
        ->compression_level(kZstdLevel)
        ->enable_page_checksum()
        ->max_row_group_length(std::numeric_limits<int64_t>::max())
        ->created_by(kCreatedBy)
        ->memory_pool(arrow::system_memory_pool());
    // The least and the largest number of all lists are of no use to a reader.
    for (const auto& column : form_.columns) {
      if (column.width > 0) properties.disable_statistics(column.name + ".list.element");
    }
    // So that other programs get the lists of fixed length back.
    const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
    auto writer = parquet::arrow::FileWriter::Open(*schema_, arrow::system_memory_pool(), stream_,
                                                   properties.build(), arrow_properties);
    if (!writer.ok()) return write_failed(*stream_, writer.status());
    writer_ = std::move(writer).ValueUnsafe();
    return {};
  }

  Status write_group(Bytes rows) override {
    const auto status = write_rows(rows);
    return status.ok() ? Status() : write_failed(*stream_, status);
  }

  Status finish() override {
    const auto status = writer_->Close();
    return status.ok() ? Status() : write_failed(*stream_, status);
  }

 private:
  arrow::Status write_rows(Bytes rows) {
    const size_t row_bytes = form_.row_bytes();
    if (row_bytes == 0) return arrow::Status::Invalid("a table needs columns");
    const size_t count = rows.size() / row_bytes;
    arrow::ArrayVector arrays;
    size_t offset = 0;
    for (size_t i = 0; i < form_.columns.size(); ++i) {
      ARROW_ASSIGN_OR_RAISE(auto array, take_column(rows, count, i, offset));
      arrays.push_back(std::move(array));
      offset += form_.columns[i].bytes();
    }
    const auto length = static_cast<int64_t>(count);
    const auto table = arrow::Table::Make(schema_, arrays, length);
    return writer_->WriteTable(*table, length);
  }

  // The column `index`, which is at `offset` in each row.
  arrow::Result<std::shared_ptr<arrow::Array>> take_column(Bytes rows, size_t count, size_t index,
                                                           size_t offset) const {
    const auto& column = form_.columns[index];
    const size_t row_bytes = form_.row_bytes();
    const size_t bytes = column.bytes();
    ARROW_ASSIGN_OR_RAISE(
        std::shared_ptr<arrow::Buffer> buffer,
        arrow::AllocateBuffer(static_cast<int64_t>(count * bytes), arrow::system_memory_pool()));
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(buffer->mutable_data() + i * bytes, rows.data() + i * row_bytes + offset, bytes);
    }
    const auto values = static_cast<int64_t>(count * column.values());
    std::shared_ptr<arrow::Array> array;
    if (column.type == TableColumn::Type::kInt64) {
      array = std::make_shared<arrow::Int64Array>(values, std::move(buffer));
    } else {
      array = std::make_shared<arrow::FloatArray>(values, std::move(buffer));
    }
    if (column.width > 0) {
      const auto& type = schema_->field(static_cast<int>(index))->type();
      array = std::make_shared<arrow::FixedSizeListArray>(type, static_cast<int64_t>(count),
                                                          std::move(array));
    }
    return array;
  }

  const TableForm form_;
  const std::shared_ptr<FileStream> stream_;
  std::shared_ptr<arrow::Schema> schema_;
  std::unique_ptr<parquet::arrow::FileWriter> writer_;
};

}  // namespace

Result<std::unique_ptr<TableWriter>> make_parquet_table(WritableFile& file, const TableForm& form) {
  for (const auto& column : form.columns) {
    if (column.width > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
      return Error(ErrorKind::kUsage,
                   "'{}' has {} numbers for each sample, more than a list in a Parquet file can "
                   "have; write .csv or .jsonl",
                   column.name, column.width);
    }
  }
  auto writer = std::make_unique<ParquetTable>(file, form);
  MUSTER_RETURN_IF_ERROR(writer->open());
  return std::unique_ptr<TableWriter>(std::move(writer));
}

}  // namespace muster::data
