// Tables of results, written as Parquet files: rows of fixed length, which come in pieces of any
// length.
//
// The bytes of a file follow from its rows alone. Rows are collected into row groups of fixed
// length, whatever the pieces were, and all settings of the writer are fixed. (They may be others
// with another version of libparquet.) One row group is in memory at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/base/result.h"

namespace muster::data {

// One column. Each row has a value, or a list of values; none is missing.
struct TableColumn {
  enum class Type : uint8_t { kInt64, kFloat32 };

  std::string name;
  Type type = Type::kInt64;
  size_t width = 0;  // 0: one value in each row; otherwise a list of `width` values

  size_t values() const { return width == 0 ? 1 : width; }
  size_t bytes() const { return values() * (type == Type::kInt64 ? 8 : 4); }
  bool operator==(const TableColumn&) const = default;
};

// A row is the values of its columns in order, without gaps, as they are in memory.
struct TableForm {
  std::vector<TableColumn> columns;

  size_t row_bytes() const {
    size_t sum = 0;
    for (const auto& column : columns) sum += column.bytes();
    return sum;
  }
  bool operator==(const TableForm&) const = default;
};

// What the plugin writes with (blocks/column_plugin.h). Not safe for concurrent use.
class TableWriter {
 public:
  virtual ~TableWriter() = default;
  // The rows of one row group, at least one.
  virtual Status write_group(std::span<const std::byte> rows) = 0;
  // Writes what follows the last row group. Neither syncs nor closes the file.
  virtual Status finish() = 0;
};

// A Parquet file being written. Not safe for concurrent use.
class TableFile {
 public:
  // Bytes of rows in a row group: enough that readers work on long stretches, few enough that a job
  // can read the file as training data (data.window).
  static constexpr size_t kGroupBytes = size_t{16} << 20;

  // `file` must outlive it. The form has at least one column. `group_bytes` is rounded down to
  // whole rows, at least one. Errors: kMachine, the plugin is not there; kUsage, a list is too long
  // for the format.
  static Result<TableFile> open(WritableFile& file, const TableForm& form,
                                size_t group_bytes = kGroupBytes);

  // The next bytes of the rows: some rows, or parts of rows.
  Status append(std::span<const std::byte> rows);
  // After the last row. Neither syncs nor closes the file, which is no Parquet file before.
  Status finish();

 private:
  TableFile(std::unique_ptr<TableWriter> writer, size_t row_bytes, size_t group_bytes)
      : writer_(std::move(writer)), row_bytes_(row_bytes), group_bytes_(group_bytes) {}
  Status write_group();

  std::unique_ptr<TableWriter> writer_;
  size_t row_bytes_;
  size_t group_bytes_;            // a multiple of row_bytes_
  std::vector<std::byte> group_;  // rows that are not written yet: less than group_bytes_
};

}  // namespace muster::data
