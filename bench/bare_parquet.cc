// The yardstick of bench/streams.py for Parquet: reads files as a program would that has only
// libparquet and libarrow, and makes float32 samples of them, as training needs them. A program of
// its own, because these libraries are optional.
//
//   bare_parquet FILE...     row group by row group, with checksums; the column `input`, of strings
//                            of bytes of one length, and `label`
//
// Prints what Samples::report() says.
#include <arrow/array.h>
#include <arrow/memory_pool.h>
#include <arrow/table.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <exception>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/bare_samples.h"

namespace {

using muster::bench::fail;
using muster::bench::Samples;

template <typename T>
T valued(arrow::Result<T> result) {
  if (!result.ok()) fail(result.status().ToString().c_str());
  return std::move(result).ValueUnsafe();
}

void read_file(const char* path, Samples& samples) {
  parquet::ReaderProperties properties(arrow::system_memory_pool());
  properties.set_page_checksum_verification(true);
  parquet::arrow::FileReaderBuilder builder;
  if (!builder.OpenFile(path, /*memory_map=*/false, properties).ok()) fail("cannot open the file");
  builder.memory_pool(arrow::system_memory_pool());
  const std::unique_ptr<parquet::arrow::FileReader> reader = valued(builder.Build());
  reader->set_use_threads(false);
  const auto metadata = reader->parquet_reader()->metadata();
  const std::vector<int> columns = {metadata->schema()->ColumnIndex("input"),
                                    metadata->schema()->ColumnIndex("label")};
  if (columns[0] < 0 || columns[1] < 0) fail("no input, or no label");
  for (int group = 0; group < reader->num_row_groups(); ++group) {
    const auto table = valued(reader->ReadRowGroup(group, columns));
    const auto inputs = table->GetColumnByName("input");
    if (inputs == nullptr) fail("no input");
    for (const auto& chunk : inputs->chunks()) {
      const auto pixels = std::dynamic_pointer_cast<arrow::FixedSizeBinaryArray>(chunk);
      if (pixels == nullptr) fail("the input has no bytes of one length");
      for (int64_t i = 0; i < pixels->length(); ++i) samples.take(pixels->GetView(i));
    }
  }
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) fail("usage: bare_parquet FILE...");
  Samples samples;
  try {
    for (int i = 1; i < count; ++i) read_file(words[i], samples);
  } catch (const std::exception& error) {
    fail(error.what());
  }
  samples.report();
}
