// Packed samples as Parquet: the columns `input` (fixed_size_binary of pixels, fixed_size_list of
// float, or of int32 for tokens, or list of int64 for ids), `values` (list of float, of ids that
// have some) and `label` (int64 or float; tokens have none).
#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/builder.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <parquet/arrow/writer.h>
#include <parquet/exception.h>
#include <parquet/properties.h>

#include <cstring>
#include <limits>

#include "muster/data/arrow/arrow_support.h"
#include "muster/data/arrow/files.h"

namespace muster::data {
namespace {

using Bytes = std::span<const std::byte>;

using Input = SampleForm::Input;
using Array = std::shared_ptr<arrow::Array>;
using Buffer = std::shared_ptr<arrow::Buffer>;

arrow::Result<Buffer> allocate(size_t bytes) {
  return arrow::AllocateBuffer(static_cast<int64_t>(bytes), arrow::system_memory_pool());
}

class ParquetWriter final : public SampleWriter {
 public:
  ParquetWriter(WritableFile& file, const SampleForm& form)
      : form_(form),
        elements_(static_cast<int32_t>(form.input_elements())),
        stream_(std::make_shared<FileStream>(file)) {
    arrow::FieldVector fields = {arrow::field(std::string(kPackedInput), input_type(), false)};
    if (form.input == Input::kIdsWithValues) {
      fields.push_back(
          arrow::field(std::string(kPackedValues), arrow::list(element(arrow::float32())), false));
    }
    if (form.input != Input::kTokens) {
      fields.push_back(arrow::field(std::string(kPackedLabel),
                                    form.has_classes ? arrow::int64() : arrow::float32(), false));
    }
    schema_ = arrow::schema(std::move(fields));
  }

  Status open() {
    parquet::WriterProperties::Builder builder;
    builder.compression(parquet::Compression::SNAPPY)
        ->disable_statistics()
        ->enable_page_checksum()
        ->max_row_group_length(std::numeric_limits<int64_t>::max())
        ->memory_pool(arrow::system_memory_pool());
    // Numbers and pixels hardly repeat; tokens and ids do.
    if (form_.input == Input::kNumbers || form_.input == Input::kPixels) {
      builder.disable_dictionary(std::string(kPackedInput) +
                                 (form_.input == Input::kPixels ? "" : ".list.element"));
    }
    // So that other programs get the lists of fixed length back.
    const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
    auto writer = parquet::arrow::FileWriter::Open(*schema_, arrow::system_memory_pool(), stream_,
                                                   builder.build(), arrow_properties);
    if (!writer.ok()) return write_failed(*stream_, writer.status());
    writer_ = std::move(writer).ValueUnsafe();
    return {};
  }

  Status write_block(Bytes samples) override {
    const auto status = write_rows(samples);
    return status.ok() ? Status() : write_failed(*stream_, status);
  }

  Status finish() override {
    const auto status = writer_->Close();
    return status.ok() ? Status() : write_failed(*stream_, status);
  }

 private:
  static std::shared_ptr<arrow::Field> element(std::shared_ptr<arrow::DataType> type) {
    return arrow::field("element", std::move(type), /*nullable=*/false);
  }

  std::shared_ptr<arrow::DataType> input_type() const {
    switch (form_.input) {
      case Input::kPixels:
        return arrow::fixed_size_binary(elements_);
      case Input::kTokens:
        return arrow::fixed_size_list(element(arrow::int32()), elements_ + 1);
      case Input::kIds:
      case Input::kIdsWithValues:
        return arrow::list(element(arrow::int64()));
      case Input::kNumbers:
        break;
    }
    return arrow::fixed_size_list(element(arrow::float32()), elements_);
  }

  // The same bytes of each sample, side by side.
  arrow::Result<Buffer> gather(Bytes samples, size_t offset, size_t bytes) const {
    const size_t rows = samples.size() / form_.bytes();
    ARROW_ASSIGN_OR_RAISE(auto gathered, allocate(rows * bytes));
    for (size_t i = 0; i < rows; ++i) {
      std::memcpy(gathered->mutable_data() + i * bytes, samples.data() + i * form_.bytes() + offset,
                  bytes);
    }
    return gathered;
  }

  arrow::Result<arrow::ArrayVector> inputs(Bytes samples, int64_t count) const {
    if (form_.has_ids()) return id_lists(samples, count);
    ARROW_ASSIGN_OR_RAISE(auto bytes, gather(samples, 0, form_.input_bytes()));
    const auto type = schema_->field(0)->type();
    if (form_.input == Input::kPixels) {
      return arrow::ArrayVector{
          std::make_shared<arrow::FixedSizeBinaryArray>(type, count, std::move(bytes))};
    }
    Array values;
    if (form_.input == Input::kTokens) {
      values = std::make_shared<arrow::Int32Array>(count * (elements_ + 1), std::move(bytes));
    } else {
      values = std::make_shared<arrow::FloatArray>(count * elements_, std::move(bytes));
    }
    return arrow::ArrayVector{
        std::make_shared<arrow::FixedSizeListArray>(type, count, std::move(values))};
  }

  // The ids, and the values if there are any. Both have the same lengths.
  arrow::Result<arrow::ArrayVector> id_lists(Bytes samples, int64_t count) const {
    const auto rows = static_cast<size_t>(count);
    const auto sample = [&](size_t i) {
      return StoredIds(samples.subspan(i * form_.bytes(), form_.input_bytes()), form_);
    };
    ARROW_ASSIGN_OR_RAISE(auto ends, allocate((rows + 1) * sizeof(int32_t)));
    auto* end = reinterpret_cast<int32_t*>(ends->mutable_data());
    uint64_t total = 0;
    end[0] = 0;
    for (size_t i = 0; i < rows; ++i) {
      total += sample(i).count();
      if (total > std::numeric_limits<int32_t>::max()) {
        return arrow::Status::Invalid("a block has more than 2^31 ids; take a smaller --block");
      }
      end[i + 1] = static_cast<int32_t>(total);
    }
    ARROW_ASSIGN_OR_RAISE(auto ids, allocate(total * sizeof(int64_t)));
    ARROW_ASSIGN_OR_RAISE(auto values, allocate(total * sizeof(float)));
    auto* id = reinterpret_cast<int64_t*>(ids->mutable_data());
    auto* value = values->mutable_data();
    for (size_t i = 0; i < rows; ++i) {
      const StoredIds stored = sample(i);
      for (size_t j = 0; j < stored.count(); ++j) *id++ = stored.id(j);
      const Bytes some = stored.values();
      if (!some.empty()) std::memcpy(value, some.data(), some.size());
      value += some.size();
    }
    arrow::ArrayVector arrays = {std::make_shared<arrow::ListArray>(
        schema_->field(0)->type(), count, ends,
        std::make_shared<arrow::Int64Array>(static_cast<int64_t>(total), std::move(ids)))};
    if (form_.input == Input::kIdsWithValues) {
      arrays.push_back(std::make_shared<arrow::ListArray>(
          schema_->field(1)->type(), count, std::move(ends),
          std::make_shared<arrow::FloatArray>(static_cast<int64_t>(total), std::move(values))));
    }
    return arrays;
  }

  arrow::Status write_rows(Bytes samples) {
    const auto count = static_cast<int64_t>(samples.size() / form_.bytes());
    ARROW_ASSIGN_OR_RAISE(auto columns, inputs(samples, count));
    if (form_.input != Input::kTokens) {
      ARROW_ASSIGN_OR_RAISE(auto targets,
                            gather(samples, form_.input_bytes(), form_.target_bytes()));
      if (form_.has_classes) {
        columns.push_back(std::make_shared<arrow::Int64Array>(count, std::move(targets)));
      } else {
        columns.push_back(std::make_shared<arrow::FloatArray>(count, std::move(targets)));
      }
    }
    const auto table = arrow::Table::Make(schema_, columns, count);
    return writer_->WriteTable(*table, count);
  }

  const SampleForm form_;
  const int32_t elements_;
  const std::shared_ptr<FileStream> stream_;
  std::shared_ptr<arrow::Schema> schema_;
  std::unique_ptr<parquet::arrow::FileWriter> writer_;
};

}  // namespace

Result<std::unique_ptr<SampleWriter>> make_parquet_writer(WritableFile& file,
                                                          const SampleForm& form) {
  auto writer = std::make_unique<ParquetWriter>(file, form);
  MUSTER_RETURN_IF_ERROR(writer->open());
  return std::unique_ptr<SampleWriter>(std::move(writer));
}

}  // namespace muster::data
