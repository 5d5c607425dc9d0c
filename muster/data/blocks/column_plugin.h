// The border to libmuster_arrow.so, which reads and writes Parquet and Arrow files
// (muster/data/arrow).
//
// A plugin, because libarrow is 60 MB, starts a thread as it is loaded, and is needed by few jobs:
// it is loaded when a job or an output names such a format, and not before. Nothing of Arrow
// crosses the border. Both sides must be of the same build: kColumnPluginVersion finds others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/data/blocks/block_format.h"
#include "muster/data/pack/sample_writer.h"
#include "muster/data/pack/stored_sample.h"
#include "muster/data/table_writer.h"

namespace muster::data {

// One column of a block: for each row bytes, or some numbers.
struct Column {
  bool is_bytes = false;
  // Row i has [ends[i - 1], ends[i]) of whichever of these is not empty.
  std::vector<uint64_t> ends;
  std::vector<std::byte> bytes;
  std::vector<float> floats;    // of columns of float32 and float16
  std::vector<double> numbers;  // of all others

  uint64_t memory() const {
    return ends.capacity() * sizeof(uint64_t) + bytes.capacity() +
           floats.capacity() * sizeof(float) + numbers.capacity() * sizeof(double);
  }
};

// Some columns of files of one format, by name; a.b is the entry b of the column a. The functions
// are those of BlockFormat. Immutable; safe for concurrent use.
class ColumnFiles {
 public:
  virtual ~ColumnFiles() = default;
  virtual Result<std::vector<Extent>> cut(const ObjectReader& object) const = 0;
  virtual Result<std::string> about(const ObjectReader& object) const = 0;
  virtual Result<std::vector<std::string>> notes(const ObjectReader& object) const = 0;
  // The columns, in the order of their names, each with `count` rows. `block` begins with its note.
  // Errors (kData): it is damaged, or has a row without a value.
  virtual Result<std::vector<Column>> read(std::span<const std::byte> block, uint32_t count,
                                           std::string_view about) const = 0;
};

class ColumnPlugin {
 public:
  virtual ~ColumnPlugin() = default;
  virtual std::unique_ptr<ColumnFiles> parquet(std::vector<std::string> names) const = 0;
  virtual std::unique_ptr<ColumnFiles> arrow(std::vector<std::string> names) const = 0;
  // A row group for each block. The file must outlive the writer.
  virtual Result<std::unique_ptr<SampleWriter>> write_parquet(WritableFile& file,
                                                              const SampleForm& form) const = 0;
  // For TableFile. The file must outlive the writer. kUsage: a list is too long for the format.
  virtual Result<std::unique_ptr<TableWriter>> write_table(WritableFile& file,
                                                           const TableForm& form) const = 0;
};

// Raised with every change of what is above, or of what it uses.
inline constexpr uint64_t kColumnPluginVersion = 3;
inline constexpr const char* kColumnPluginFile = "libmuster_arrow.so";

// What the library exports.
extern "C" {
using MusterColumnPluginVersion = uint64_t();
using MusterColumnPlugin = const ColumnPlugin*();
}
inline constexpr const char* kColumnPluginVersionName = "muster_column_plugin_version";
inline constexpr const char* kColumnPluginName = "muster_column_plugin";

// Loads the library, once: from ../lib/muster beside the program's directory, or where the system
// looks for libraries. It is never unloaded. Error (kMachine): it is not there, or of another
// build; `format` is what needs it.
Result<const ColumnPlugin*> load_column_plugin(std::string_view format);

}  // namespace muster::data
