// Packed samples as Parquet: the columns `input` (fixed_size_binary of pixels, or fixed_size_list
// of float) and `label` (int64 or float).
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

class ParquetWriter final : public SampleWriter {
 public:
  ParquetWriter(WritableFile& file, const SampleForm& form)
      : form_(form),
        elements_(static_cast<int32_t>(form.input_elements())),
        stream_(std::make_shared<FileStream>(file)) {
    const auto value = arrow::field("element", arrow::float32(), /*nullable=*/false);
    const auto input = form.pixels ? arrow::fixed_size_binary(elements_)
                                   : arrow::fixed_size_list(value, elements_);
    schema_ =
        arrow::schema({arrow::field(std::string(kPackedInput), input, false),
                       arrow::field(std::string(kPackedLabel),
                                    form.has_classes ? arrow::int64() : arrow::float32(), false)});
  }

  Status open() {
    // Values of inputs hardly repeat.
    const std::string leaf = std::string(kPackedInput) + (form_.pixels ? "" : ".list.element");
    const auto properties = parquet::WriterProperties::Builder()
                                .compression(parquet::Compression::SNAPPY)
                                ->disable_dictionary(leaf)
                                ->disable_statistics()
                                ->enable_page_checksum()
                                ->max_row_group_length(std::numeric_limits<int64_t>::max())
                                ->memory_pool(arrow::system_memory_pool())
                                ->build();
    // So that other programs get the lists of fixed length back.
    const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
    auto writer = parquet::arrow::FileWriter::Open(*schema_, arrow::system_memory_pool(), stream_,
                                                   properties, arrow_properties);
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
  arrow::Status write_rows(Bytes samples) {
    const size_t rows = samples.size() / form_.bytes();
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> inputs,
                          arrow::AllocateBuffer(static_cast<int64_t>(rows * form_.input_bytes()),
                                                arrow::system_memory_pool()));
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> targets,
                          arrow::AllocateBuffer(static_cast<int64_t>(rows * form_.target_bytes()),
                                                arrow::system_memory_pool()));
    for (size_t i = 0; i < rows; ++i) {
      const Bytes sample = samples.subspan(i * form_.bytes(), form_.bytes());
      std::memcpy(inputs->mutable_data() + i * form_.input_bytes(), sample.data(),
                  form_.input_bytes());
      std::memcpy(targets->mutable_data() + i * form_.target_bytes(),
                  sample.data() + form_.input_bytes(), form_.target_bytes());
    }
    const auto count = static_cast<int64_t>(rows);
    std::shared_ptr<arrow::Array> input;
    if (form_.pixels) {
      input = std::make_shared<arrow::FixedSizeBinaryArray>(schema_->field(0)->type(), count,
                                                            std::move(inputs));
    } else {
      auto values = std::make_shared<arrow::FloatArray>(count * elements_, std::move(inputs));
      input = std::make_shared<arrow::FixedSizeListArray>(schema_->field(0)->type(), count,
                                                          std::move(values));
    }
    std::shared_ptr<arrow::Array> target;
    if (form_.has_classes) {
      target = std::make_shared<arrow::Int64Array>(count, std::move(targets));
    } else {
      target = std::make_shared<arrow::FloatArray>(count, std::move(targets));
    }
    const auto table = arrow::Table::Make(schema_, {std::move(input), std::move(target)}, count);
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
