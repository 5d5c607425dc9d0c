// Arrow's IPC format, as a file (Feather version 2 is the same) or as a stream. A block is the
// message of a record batch, its head included.
//
//   file:   "ARROW1", two zero bytes, then as a stream, then a footer, which is not needed
//   stream: messages; the first is the schema. A message: ff ff ff ff, the length of its metadata
//           (4 bytes), the metadata, a body whose length the metadata has. Length 0 is the end.
#include <arrow/array.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/dictionary.h>
#include <arrow/ipc/message.h>
#include <arrow/ipc/options.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <arrow/util/float16.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include <fmt/ranges.h>

#include "muster/base/text.h"
#include "muster/data/arrow/arrow_support.h"
#include "muster/data/arrow/files.h"

namespace muster::data {
namespace {

using Bytes = std::span<const std::byte>;
using BufferPointer = std::shared_ptr<arrow::Buffer>;

constexpr std::string_view kMagic{"ARROW1\0\0", 8};
constexpr uint64_t kHead = 8;
constexpr uint32_t kContinues = 0xffffffff;

struct Head {
  uint32_t mark = 0;
  uint32_t metadata = 0;  // bytes
};

// Where a message is in its object.
struct Place {
  uint64_t offset = 0;
  uint64_t metadata = 0;  // bytes
  uint64_t body = 0;
  uint64_t length() const { return kHead + metadata + body; }
};

// Not a copy: `bytes` must outlive it.
BufferPointer view(Bytes bytes) {
  return std::make_shared<arrow::Buffer>(reinterpret_cast<const uint8_t*>(bytes.data()),
                                         static_cast<int64_t>(bytes.size()));
}

Result<Head> check_head(Bytes bytes) {
  Head head;
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.mark == 0) return Head{.mark = kContinues, .metadata = 0};  // an old end
  if (head.mark != kContinues) {
    return damaged("Arrow", "a message without a mark; files from before Arrow 0.15 are not read");
  }
  return head;
}

// Calls visit(place, message without its body) for each message, up to the end of the stream.
template <typename Visit>
Status for_each_message(const ObjectReader& object, const Visit& visit) {
  std::array<std::byte, kHead> head_bytes{};
  bool is_file = false;
  if (object.size >= kMagic.size()) {
    MUSTER_RETURN_IF_ERROR(object.read(0, head_bytes));
    is_file = std::memcmp(head_bytes.data(), kMagic.data(), kMagic.size()) == 0;
  }
  uint64_t at = is_file ? kMagic.size() : 0;
  std::vector<std::byte> metadata;
  while (at < object.size) {
    if (object.size - at < kHead) return damaged("Arrow", "it is cut short");
    MUSTER_RETURN_IF_ERROR(object.read(at, head_bytes));
    MUSTER_TRY(const Head head, check_head(head_bytes));
    if (head.metadata == 0) return {};
    Place place{.offset = at, .metadata = head.metadata};
    if (place.length() > object.size - at) return damaged("Arrow", "it is cut short");
    metadata.resize(head.metadata);
    MUSTER_RETURN_IF_ERROR(object.read(at + kHead, metadata));
    MUSTER_ARROW_TRY(const auto message, arrow::ipc::Message::Open(view(metadata), nullptr));
    if (message->body_length() < 0 ||
        static_cast<uint64_t>(message->body_length()) > object.size - at - place.length()) {
      return damaged("Arrow", "it is cut short");
    }
    place.body = static_cast<uint64_t>(message->body_length());
    MUSTER_RETURN_IF_ERROR(visit(place, *message));
    at += place.length();
  }
  // A stream may end without saying so.
  return is_file ? damaged("Arrow", "it is cut short") : Status();
}

template <typename Array>
void append(const arrow::Array& values, std::vector<double>& to) {
  const auto& typed = dynamic_cast<const Array&>(values);
  for (int64_t i = 0; i < typed.length(); ++i) to.push_back(static_cast<double>(typed.Value(i)));
}

Error no_value(const arrow::Array& array) {
  int64_t row = 0;
  while (row < array.length() && !array.IsNull(row)) ++row;
  return Error(ErrorKind::kData, "row {} has no value (null); remove such rows, or fill them", row);
}

Error cannot_read(const arrow::Array& array) {
  return Error(ErrorKind::kData, "values of the type {} cannot be read", array.type()->ToString());
}

Status add_numbers(const arrow::Array& values, Column& column) {
  switch (values.type_id()) {
    case arrow::Type::BOOL:
      append<arrow::BooleanArray>(values, column.numbers);
      return {};
    case arrow::Type::INT8:
      append<arrow::Int8Array>(values, column.numbers);
      return {};
    case arrow::Type::INT16:
      append<arrow::Int16Array>(values, column.numbers);
      return {};
    case arrow::Type::INT32:
      append<arrow::Int32Array>(values, column.numbers);
      return {};
    case arrow::Type::INT64:
      append<arrow::Int64Array>(values, column.numbers);
      return {};
    case arrow::Type::UINT8:
      append<arrow::UInt8Array>(values, column.numbers);
      return {};
    case arrow::Type::UINT16:
      append<arrow::UInt16Array>(values, column.numbers);
      return {};
    case arrow::Type::UINT32:
      append<arrow::UInt32Array>(values, column.numbers);
      return {};
    case arrow::Type::UINT64:
      append<arrow::UInt64Array>(values, column.numbers);
      return {};
    case arrow::Type::DOUBLE:
      append<arrow::DoubleArray>(values, column.numbers);
      return {};
    case arrow::Type::FLOAT: {
      const auto& typed = dynamic_cast<const arrow::FloatArray&>(values);
      column.floats.assign(typed.raw_values(), typed.raw_values() + typed.length());
      return {};
    }
    case arrow::Type::HALF_FLOAT: {
      const auto& typed = dynamic_cast<const arrow::HalfFloatArray&>(values);
      for (int64_t i = 0; i < typed.length(); ++i) {
        column.floats.push_back(arrow::util::Float16::FromBits(typed.Value(i)).ToFloat());
      }
      return {};
    }
    default:
      return cannot_read(values);
  }
}

template <typename Array>
void add_strings(const arrow::Array& array, Column& column) {
  const auto& typed = dynamic_cast<const Array&>(array);
  column.is_bytes = true;
  for (int64_t i = 0; i < typed.length(); ++i) {
    const auto bytes = std::as_bytes(std::span(typed.GetView(i)));
    column.bytes.insert(column.bytes.end(), bytes.begin(), bytes.end());
    column.ends.push_back(column.bytes.size());
  }
}

template <typename Array>
Status add_lists(const arrow::Array& array, Column& column) {
  const auto& lists = dynamic_cast<const Array&>(array);
  const int64_t first = lists.value_offset(0);
  for (int64_t i = 0; i < lists.length(); ++i) {
    column.ends.push_back(static_cast<uint64_t>(lists.value_offset(i + 1) - first));
  }
  const auto values = lists.values()->Slice(first, static_cast<int64_t>(column.ends.back()));
  if (values->null_count() > 0) {
    return Error(ErrorKind::kData, "a list has an element without a value (null); fill it");
  }
  return add_numbers(*values, column);
}

// The array has at least one row, and has been validated.
Result<Column> to_column(const arrow::Array& array) {
  if (array.null_count() > 0) return no_value(array);
  Column column;
  switch (array.type_id()) {
    case arrow::Type::BINARY:
    case arrow::Type::STRING:
      add_strings<arrow::BinaryArray>(array, column);
      return column;
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::LARGE_STRING:
      add_strings<arrow::LargeBinaryArray>(array, column);
      return column;
    case arrow::Type::FIXED_SIZE_BINARY:
      add_strings<arrow::FixedSizeBinaryArray>(array, column);
      return column;
    case arrow::Type::LIST:
      MUSTER_RETURN_IF_ERROR(add_lists<arrow::ListArray>(array, column));
      return column;
    case arrow::Type::LARGE_LIST:
      MUSTER_RETURN_IF_ERROR(add_lists<arrow::LargeListArray>(array, column));
      return column;
    case arrow::Type::FIXED_SIZE_LIST:
      MUSTER_RETURN_IF_ERROR(add_lists<arrow::FixedSizeListArray>(array, column));
      return column;
    default:
      for (int64_t i = 0; i < array.length(); ++i) {
        column.ends.push_back(static_cast<uint64_t>(i + 1));
      }
      MUSTER_RETURN_IF_ERROR(add_numbers(array, column));
      return column;
  }
}

class ArrowFiles final : public ColumnFiles {
 public:
  explicit ArrowFiles(std::vector<std::string> names) : names_(std::move(names)) {}

  Result<std::vector<Extent>> cut(const ObjectReader& object) const override {
    std::vector<Extent> extents;
    std::shared_ptr<arrow::Schema> schema;
    std::vector<std::byte> bytes;
    const auto visit = [&](const Place& place, const arrow::ipc::Message& message) -> Status {
      if (message.type() == arrow::ipc::MessageType::SCHEMA && schema == nullptr) {
        MUSTER_TRY(schema, read_schema(message));
        MUSTER_RETURN_IF_ERROR(find_fields(*schema));
        return {};
      }
      if (message.type() != arrow::ipc::MessageType::RECORD_BATCH) return {};
      if (schema == nullptr) return damaged("Arrow", "no schema before the first record batch");
      // All of it, because only Arrow itself finds the number of rows.
      bytes.resize(place.length());
      MUSTER_RETURN_IF_ERROR(object.read(place.offset, bytes));
      LimitedPool pool(most_unpacked(bytes.size()));
      MUSTER_TRY(const auto batch, read_batch(bytes, schema, pool));
      if (batch->num_rows() == 0) return {};
      if (batch->num_rows() > std::numeric_limits<uint32_t>::max()) {
        return damaged("Arrow", "a record batch with too many rows");
      }
      extents.push_back({.offset = place.offset,
                         .length = place.length(),
                         .count = static_cast<uint32_t>(batch->num_rows())});
      return {};
    };
    MUSTER_RETURN_IF_ERROR(for_each_message(object, visit));
    if (schema == nullptr) return damaged("Arrow", "it has no schema");
    return extents;
  }

  // The schema, without what programs note in it.
  Result<std::string> about(const ObjectReader& object) const override {
    std::string text;
    const auto visit = [&](const Place& /*place*/, const arrow::ipc::Message& message) -> Status {
      if (message.type() != arrow::ipc::MessageType::SCHEMA || !text.empty()) return {};
      MUSTER_TRY(const auto schema, read_schema(message));
      arrow::FieldVector fields;
      for (const auto& field : schema->fields()) fields.push_back(field->RemoveMetadata());
      MUSTER_ARROW_TRY(const auto bytes, arrow::ipc::SerializeSchema(arrow::Schema(fields)));
      text = bytes->ToString();
      return {};
    };
    MUSTER_RETURN_IF_ERROR(for_each_message(object, visit));
    return text;
  }

  Result<std::vector<std::string>> notes(const ObjectReader& /*object*/) const override {
    return std::vector<std::string>();
  }

  Result<std::vector<Column>> read(Bytes block, uint32_t count,
                                   std::string_view about) const override {
    arrow::io::BufferReader stream(view(std::as_bytes(std::span(about))));
    arrow::ipc::DictionaryMemo dictionaries;
    MUSTER_ARROW_TRY(const auto schema, arrow::ipc::ReadSchema(&stream, &dictionaries));
    LimitedPool pool(most_unpacked(block.size()));
    MUSTER_TRY(const auto batch, read_batch(block, schema, pool));
    if (batch->num_rows() != count || count == 0) {
      return damaged("Arrow", "a record batch that has not as many rows as the index says");
    }
    std::vector<Column> columns;
    for (const auto& name : names_) {
      MUSTER_TRY(const auto array, find_array(*batch, name));
      auto column = to_column(*array);
      if (!column.ok()) return std::move(column).error().context("column '{}'", name);
      columns.push_back(*std::move(column));
    }
    return columns;
  }

 private:
  static Result<std::shared_ptr<arrow::Schema>> read_schema(const arrow::ipc::Message& message) {
    arrow::ipc::DictionaryMemo dictionaries;
    MUSTER_ARROW_TRY(auto schema, arrow::ipc::ReadSchema(message, &dictionaries));
    if (!schema->is_native_endian()) {
      return Error(ErrorKind::kData, "the Arrow file is of a big-endian machine; convert it");
    }
    return schema;
  }

  // a.b: the entry b of the struct a.
  static std::pair<std::string, std::string> split_name(const std::string& name) {
    const size_t dot = name.find('.');
    if (dot == std::string::npos) return {name, ""};
    return {name.substr(0, dot), name.substr(dot + 1)};
  }

  // The columns that are needed, by their place in the schema.
  Result<std::vector<int>> find_fields(const arrow::Schema& schema) const {
    std::vector<int> places;
    for (const auto& name : names_) {
      int place = schema.GetFieldIndex(name);
      if (place < 0) place = schema.GetFieldIndex(split_name(name).first);
      if (place < 0) {
        const auto there = schema.field_names();
        return Error(ErrorKind::kData, "there is no column '{}'{}; there are: {}", name,
                     did_you_mean(name, there), fmt::join(there, ", "));
      }
      if (schema.field(place)->type()->id() == arrow::Type::DICTIONARY) {
        return Error(
            ErrorKind::kData,
            "the column '{}' is encoded by a dictionary, which cannot be read; write it as "
            "plain values, or as Parquet",
            name);
      }
      places.push_back(place);
    }
    std::ranges::sort(places);
    places.erase(std::ranges::unique(places).begin(), places.end());
    return places;
  }

  // The columns that are needed, of the batch in this message; checked. Refers to `bytes` and
  // `pool`.
  Result<std::shared_ptr<arrow::RecordBatch>> read_batch(
      Bytes bytes, const std::shared_ptr<arrow::Schema>& schema, LimitedPool& pool) const {
    if (bytes.size() < kHead) return damaged("Arrow", "it is cut short");
    MUSTER_TRY(const Head head, check_head(bytes));
    if (head.metadata > bytes.size() - kHead) return damaged("Arrow", "it is cut short");
    MUSTER_ARROW_TRY(const auto message,
                     arrow::ipc::Message::Open(view(bytes.subspan(kHead, head.metadata)),
                                               view(bytes.subspan(kHead + head.metadata))));
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.use_threads = false;
    options.memory_pool = pool.get();
    // Otherwise values are read where a file has them, which may be at any address.
    options.ensure_alignment = arrow::ipc::Alignment::kDataTypeSpecificAlignment;
    MUSTER_TRY(options.included_fields, find_fields(*schema));
    const arrow::ipc::DictionaryMemo none;
    MUSTER_ARROW_TRY(auto batch, arrow::ipc::ReadRecordBatch(*message, schema, &none, options));
    if (const auto status = batch->ValidateFull(); !status.ok()) {
      return damaged("Arrow", status.message());
    }
    return batch;
  }

  static Result<std::shared_ptr<arrow::Array>> find_array(const arrow::RecordBatch& batch,
                                                          const std::string& name) {
    if (auto array = batch.GetColumnByName(name)) return array;
    const auto [first, rest] = split_name(name);
    const auto whole = std::dynamic_pointer_cast<arrow::StructArray>(batch.GetColumnByName(first));
    const auto part = whole != nullptr ? whole->GetFieldByName(rest) : nullptr;
    if (part == nullptr) {
      return Error(ErrorKind::kData, "the column '{}' has no entry '{}'", first, rest);
    }
    MUSTER_ARROW_TRY(auto array,
                     whole->GetFlattenedField(whole->struct_type()->GetFieldIndex(rest)));
    return array;
  }

  const std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<ColumnFiles> make_arrow_files(std::vector<std::string> names) {
  return std::make_unique<ArrowFiles>(std::move(names));
}

}  // namespace muster::data
