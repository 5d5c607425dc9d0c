// Parquet. A block is the stretch of a row group that has the columns in question. Where they are
// in it, and how they are stored, is in the file's footer, of which the index keeps a note for each
// block: so a row group is decoded from its own bytes alone, without the footer.
#include <arrow/io/memory.h>
#include <arrow/util/float16.h>
#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>
#include <parquet/types.h>

#include <array>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>

#include <fmt/ranges.h>

#include "muster/base/text.h"
#include "muster/data/arrow/arrow_support.h"
#include "muster/data/arrow/files.h"

namespace muster::data {
namespace {

using Bytes = std::span<const std::byte>;

// How the numbers of a physical type are to be read.
enum class Meaning : uint8_t { kAsItIs, kUnsigned, kHalf };

// The note on one column of a row group.
struct ChunkNote {
  uint64_t offset = 0;  // in the block
  uint64_t length = 0;
  uint64_t unpacked = 0;  // bytes, once decompressed
  int64_t values = 0;     // missing ones included
  int32_t width = 0;      // of fixed_len_byte_array
  uint8_t type = 0;       // parquet::Type
  uint8_t codec = 0;      // parquet::Compression
  Meaning meaning = Meaning::kAsItIs;
  uint8_t most_definition = 0;  // the level of a value that is there
  uint8_t most_repetition = 0;  // 1: a list
  // Of a list: the least level that has an element, which may still be missing.
  uint8_t element_definition = 0;
  std::array<uint8_t, 6> unused = {};
};
static_assert(std::has_unique_object_representations_v<ChunkNote> && sizeof(ChunkNote) == 48);

// Runs `body`, which uses a library that throws.
template <typename Body>
auto guarded(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Error(ErrorKind::kMachine, "there is not enough memory for a row group");
  } catch (const std::exception& error) {
    return damaged("Parquet", error.what());
  }
}

parquet::ReaderProperties properties(arrow::MemoryPool* pool) {
  parquet::ReaderProperties result(pool);
  result.set_page_checksum_verification(true);
  return result;
}

Error cannot_read(const parquet::ColumnDescriptor& column, std::string_view what) {
  return Error(ErrorKind::kData, "the column '{}' has {}, which cannot be read",
               column.path()->ToDotString(), what);
}

// The type of a column, if it is one that can be read.
Result<ChunkNote> describe(const parquet::ColumnDescriptor& column) {
  ChunkNote note;
  const auto type = column.physical_type();
  note.type = static_cast<uint8_t>(type);
  note.width = column.type_length();
  const auto& logical = column.logical_type();
  const bool decimal = logical != nullptr && logical->is_decimal();
  if (decimal) return cannot_read(column, "decimal numbers");
  if (type == parquet::Type::INT96) return cannot_read(column, "times of 96 bits");
  const bool half = logical != nullptr && logical->is_float16();
  if (half) note.meaning = Meaning::kHalf;
  if (logical != nullptr && logical->is_int()) {
    const auto& whole = dynamic_cast<const parquet::IntLogicalType&>(*logical);
    if (!whole.is_signed()) note.meaning = Meaning::kUnsigned;
  }
  const bool bytes =
      (type == parquet::Type::BYTE_ARRAY || type == parquet::Type::FIXED_LEN_BYTE_ARRAY) && !half;
  if (column.max_repetition_level() > (bytes ? 0 : 1)) {
    return cannot_read(column, bytes ? "lists of byte strings" : "lists of lists");
  }
  if (column.max_definition_level() > std::numeric_limits<uint8_t>::max()) {
    return cannot_read(column, "too many levels");
  }
  note.most_definition = static_cast<uint8_t>(column.max_definition_level());
  note.most_repetition = static_cast<uint8_t>(column.max_repetition_level());
  // Up from the value to the list that it is an element of.
  note.element_definition = note.most_definition;
  for (const auto* node = column.schema_node().get(); node != nullptr && !node->is_repeated();
       node = node->parent()) {
    if (node->is_optional()) --note.element_definition;
  }
  return note;
}

// Values of one column as they are read. ReadBatch() gives levels and those values that are there.
class ColumnBuilder {
 public:
  ColumnBuilder(const ChunkNote& note, uint32_t rows) : note_(note), rows_(rows) {
    column_.ends.reserve(rows);
  }

  Result<Column> read(parquet::ColumnReader& reader) {
    switch (reader.type()) {
      case parquet::Type::BOOLEAN:
        return read_as<parquet::BooleanType>(reader);
      case parquet::Type::INT32:
        return read_as<parquet::Int32Type>(reader);
      case parquet::Type::INT64:
        return read_as<parquet::Int64Type>(reader);
      case parquet::Type::FLOAT:
        return read_as<parquet::FloatType>(reader);
      case parquet::Type::DOUBLE:
        return read_as<parquet::DoubleType>(reader);
      case parquet::Type::BYTE_ARRAY:
        column_.is_bytes = true;
        return read_as<parquet::ByteArrayType>(reader);
      case parquet::Type::FIXED_LEN_BYTE_ARRAY:
        column_.is_bytes = note_.meaning != Meaning::kHalf;
        return read_as<parquet::FLBAType>(reader);
      default:
        return damaged("Parquet", "a type that is not known");
    }
  }

 private:
  static constexpr int64_t kBatch = 1024;

  template <typename Type>
  Result<Column> read_as(parquet::ColumnReader& reader) {
    auto& typed = dynamic_cast<parquet::TypedColumnReader<Type>&>(reader);
    std::array<int16_t, kBatch> definitions;
    std::array<int16_t, kBatch> repetitions;
    const auto values = std::make_unique<typename Type::c_type[]>(kBatch);
    while (typed.HasNext()) {
      int64_t there = 0;
      const int64_t levels =
          typed.ReadBatch(kBatch, definitions.data(), repetitions.data(), values.get(), &there);
      if (levels <= 0) break;
      int64_t used = 0;
      for (int64_t i = 0; i < levels; ++i) {
        const int definition = note_.most_definition > 0 ? definitions[i] : 0;
        MUSTER_RETURN_IF_ERROR(begin(note_.most_repetition > 0 ? repetitions[i] : 0));
        if (definition == note_.most_definition) {
          if (used == there) return damaged("Parquet", "fewer values than levels");
          MUSTER_RETURN_IF_ERROR(add(values[used++]));
        } else if (note_.most_repetition == 0 || definition >= note_.element_definition) {
          return Error(ErrorKind::kData,
                       "row {} has no value (null); remove such rows, or fill them",
                       column_.ends.size() - 1);
        }
      }
    }
    if (column_.ends.size() != rows_) return damaged("Parquet", "not as many rows as it says");
    return std::move(column_);
  }

  // The next level; of repetition 0, the next row.
  Status begin(int repetition) {
    if (repetition > 0 && !column_.ends.empty()) return {};
    if (repetition > 0 || column_.ends.size() == rows_) {
      return damaged("Parquet", "not as many rows as it says");
    }
    column_.ends.push_back(column_.ends.empty() ? 0 : column_.ends.back());
    return {};
  }

  template <typename T>
  Status add(const T& value) {
    if constexpr (std::is_same_v<T, parquet::ByteArray>) {
      return add_bytes(value.ptr, value.len);
    } else if constexpr (std::is_same_v<T, parquet::FixedLenByteArray>) {
      if (column_.is_bytes) return add_bytes(value.ptr, static_cast<size_t>(note_.width));
      uint16_t bits = 0;
      if (note_.width != sizeof(bits)) return damaged("Parquet", "a half that is not of two bytes");
      std::memcpy(&bits, value.ptr, sizeof(bits));
      column_.floats.push_back(arrow::util::Float16::FromBits(bits).ToFloat());
    } else if constexpr (std::is_same_v<T, float>) {
      column_.floats.push_back(value);
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      column_.numbers.push_back(
          note_.meaning == Meaning::kUnsigned
              ? static_cast<double>(static_cast<std::make_unsigned_t<T>>(value))
              : static_cast<double>(value));
    } else {
      column_.numbers.push_back(static_cast<double>(value));
    }
    if (++values_ > kMostValues) return damaged("Parquet", "too many values");
    ++column_.ends.back();
    return {};
  }

  Status add_bytes(const uint8_t* data, size_t size) {
    const uint64_t most = most_repeated(note_.unpacked);
    if (size > most - column_.bytes.size()) {
      return Error(ErrorKind::kData,
                   "a row group has more than {} of values, {} without those that a dictionary "
                   "repeats; write the file with shorter row groups",
                   human_bytes(static_cast<double>(most)),
                   human_bytes(static_cast<double>(note_.unpacked)));
    }
    const auto* from = reinterpret_cast<const std::byte*>(data);
    column_.bytes.insert(column_.bytes.end(), from, from + size);
    column_.ends.back() = column_.bytes.size();
    return {};
  }

  const ChunkNote& note_;
  const uint32_t rows_;
  int64_t values_ = 0;
  Column column_;
};

class ParquetFiles final : public ColumnFiles {
 public:
  explicit ParquetFiles(std::vector<std::string> names) : names_(std::move(names)) {}

  Result<std::vector<Extent>> cut(const ObjectReader& object) const override {
    MUSTER_TRY(const auto groups, read_footer(object));
    std::vector<Extent> extents;
    extents.reserve(groups.size());
    for (const auto& group : groups) extents.push_back(group.extent);
    return extents;
  }

  Result<std::string> about(const ObjectReader& /*object*/) const override { return std::string(); }

  Result<std::vector<std::string>> notes(const ObjectReader& object) const override {
    MUSTER_TRY(const auto groups, read_footer(object));
    std::vector<std::string> notes;
    notes.reserve(groups.size());
    for (const auto& group : groups) {
      notes.emplace_back(reinterpret_cast<const char*>(group.chunks.data()),
                         group.chunks.size() * sizeof(ChunkNote));
    }
    return notes;
  }

  Result<std::vector<Column>> read(Bytes block, uint32_t count,
                                   std::string_view /*about*/) const override {
    const size_t note_bytes = names_.size() * sizeof(ChunkNote);
    if (block.size() < note_bytes) return damaged("Parquet", "a row group without its note");
    std::vector<ChunkNote> chunks(names_.size());
    std::memcpy(chunks.data(), block.data(), note_bytes);
    const Bytes data = block.subspan(note_bytes);
    std::vector<Column> columns;
    for (size_t i = 0; i < chunks.size(); ++i) {
      auto column = guarded([&] { return read_chunk(chunks[i], data, count); });
      if (!column.ok()) return std::move(column).error().context("column '{}'", names_[i]);
      columns.push_back(*std::move(column));
    }
    return columns;
  }

 private:
  struct RowGroup {
    Extent extent;
    std::vector<ChunkNote> chunks;  // by name
  };

  static Result<Column> read_chunk(const ChunkNote& note, Bytes data, uint32_t rows) {
    if (note.offset > data.size() || note.length > data.size() - note.offset) {
      return damaged("Parquet", "a column outside of its row group");
    }
    const auto* begin = reinterpret_cast<const uint8_t*>(data.data()) + note.offset;
    auto stream = std::make_shared<arrow::io::BufferReader>(
        std::make_shared<arrow::Buffer>(begin, static_cast<int64_t>(note.length)));
    // Pages, one at a time, and a dictionary: not more than all that is in it, twice.
    LimitedPool pool(static_cast<int64_t>(2 * note.unpacked + (uint64_t{1} << 20)));
    const parquet::ColumnDescriptor column(
        parquet::schema::PrimitiveNode::Make("x", parquet::Repetition::REQUIRED,
                                             static_cast<parquet::Type::type>(note.type),
                                             parquet::ConvertedType::NONE, note.width),
        note.most_definition, note.most_repetition);
    auto pages = parquet::PageReader::Open(stream, note.values,
                                           static_cast<parquet::Compression::type>(note.codec),
                                           properties(pool.get()), column);
    const auto reader = parquet::ColumnReader::Make(&column, std::move(pages), pool.get());
    return ColumnBuilder(note, rows).read(*reader);
  }

  Result<std::vector<RowGroup>> read_footer(const ObjectReader& object) const {
    const auto file = std::make_shared<ObjectFile>(object);
    auto groups = guarded([&]() -> Result<std::vector<RowGroup>> {
      const auto reader =
          parquet::ParquetFileReader::Open(file, properties(arrow::system_memory_pool()));
      const auto metadata = reader->metadata();
      MUSTER_TRY(const auto places, find_columns(*metadata->schema()));
      std::vector<RowGroup> found;
      for (int i = 0; i < metadata->num_row_groups(); ++i) {
        const auto group = metadata->RowGroup(i);
        if (group->num_rows() == 0) continue;
        MUSTER_TRY(auto described, describe_group(*group, places, object.size));
        found.push_back(std::move(described));
      }
      return found;
    });
    // Not what Arrow makes of it: the store may only be away.
    if (!groups.ok() && file->error()) return *file->error();
    return groups;
  }

  // The places of the columns in the schema.
  Result<std::vector<int>> find_columns(const parquet::SchemaDescriptor& schema) const {
    std::vector<int> places;
    for (const auto& name : names_) {
      std::vector<int> found;
      std::vector<std::string> there;  // what can be named
      std::vector<std::string> parts;  // of the column of that name
      for (int i = 0; i < schema.num_columns(); ++i) {
        const std::string path = schema.Column(i)->path()->ToDotString();
        const std::string root = schema.GetColumnRoot(i)->name();
        if (there.empty() || there.back() != root) there.push_back(root);
        if (path != name && root != name) continue;
        found.push_back(i);
        parts.push_back(path);
      }
      if (found.empty()) {
        return Error(ErrorKind::kData, "there is no column '{}'{}; there are: {}", name,
                     did_you_mean(name, there), fmt::join(there, ", "));
      }
      if (found.size() > 1) {
        return Error(ErrorKind::kData, "the column '{}' has several parts; name one of: {}", name,
                     fmt::join(parts, ", "));
      }
      places.push_back(found.front());
    }
    return places;
  }

  static Result<RowGroup> describe_group(const parquet::RowGroupMetaData& group,
                                         const std::vector<int>& places, uint64_t file_size) {
    RowGroup result;
    uint64_t begin = file_size;
    uint64_t end = 0;
    for (const int place : places) {
      const auto chunk = group.ColumnChunk(place);
      MUSTER_TRY(ChunkNote note, describe(*group.schema()->Column(place)));
      if (chunk->crypto_metadata() != nullptr) {
        return Error(ErrorKind::kData, "the file is encrypted, which is not supported");
      }
      int64_t offset = chunk->data_page_offset();
      if (chunk->has_dictionary_page() && chunk->dictionary_page_offset() > 0) {
        offset = std::min(offset, chunk->dictionary_page_offset());
      }
      const int64_t length = chunk->total_compressed_size();
      const int64_t unpacked = chunk->total_uncompressed_size();
      if (offset < 0 || length <= 0 || unpacked < 0 || static_cast<uint64_t>(offset) > file_size ||
          static_cast<uint64_t>(length) > file_size - static_cast<uint64_t>(offset)) {
        return damaged("Parquet", "a column outside of the file");
      }
      const int64_t most = most_unpacked(static_cast<uint64_t>(length));
      if (unpacked > most) {
        return Error(ErrorKind::kData,
                     "a row group has more than {} once it is decompressed; write the file with "
                     "shorter row groups",
                     human_bytes(static_cast<double>(most)));
      }
      note.offset = static_cast<uint64_t>(offset);
      note.length = static_cast<uint64_t>(length);
      note.unpacked = static_cast<uint64_t>(unpacked);
      note.values = chunk->num_values();
      note.codec = static_cast<uint8_t>(chunk->compression());
      begin = std::min(begin, note.offset);
      end = std::max(end, note.offset + note.length);
      result.chunks.push_back(note);
    }
    const int64_t rows = group.num_rows();
    if (rows < 0 || rows > std::numeric_limits<uint32_t>::max()) {
      return damaged("Parquet", "a row group with too many rows");
    }
    for (auto& note : result.chunks) note.offset -= begin;
    result.extent = {.offset = begin, .length = end - begin, .count = static_cast<uint32_t>(rows)};
    return result;
  }

  const std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<ColumnFiles> make_parquet_files(std::vector<std::string> names) {
  return std::make_unique<ParquetFiles>(std::move(names));
}

}  // namespace muster::data
