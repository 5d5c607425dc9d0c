// Helpers for tests and fuzzers of formats of blocks: objects in memory, files of testdata, and
// whole data sets read through cut, schema_of and decode as a program would.
#pragma once

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/check.h"
#include "muster/config/node.h"
#include "muster/data/blocks/block_format.h"
#include "muster/data/blocks/block_formats.h"

namespace muster::data::testing {

// `contents` must outlive the reader.
inline ObjectReader object_of(std::string_view contents, std::string name = "x") {
  return {.name = std::move(name),
          .size = contents.size(),
          .read = [contents](uint64_t offset, std::span<std::byte> into) -> Status {
            MUSTER_CHECK(offset <= contents.size() && into.size() <= contents.size() - offset,
                         "a format reads within the object");
            if (!into.empty()) std::memcpy(into.data(), contents.data() + offset, into.size());
            return {};
          }};
}

inline std::string testdata_path(const std::string& name) {
  const char* root = std::getenv("MUSTER_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  return std::string(root != nullptr ? root : ".") + "/muster/data/blocks/testdata/" + name;
}

inline std::string testdata(const std::string& name) {
  std::ifstream in(testdata_path(name), std::ios::binary);
  std::string contents{std::istreambuf_iterator<char>(in), {}};
  MUSTER_CHECK(!contents.empty(), "run from the source directory, or set MUSTER_SOURCE_DIR");
  return contents;
}

inline config::Node args_of(std::string_view yaml) { return *config::parse_value(yaml, "test"); }

// Everything a data set gives: of each sample its bytes of input and target.
struct AllSamples {
  Schema schema;
  std::vector<Extent> extents;
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<int64_t>> ids;  // instead of `inputs`, if they are int64
  std::vector<double> targets;  // of several numbers, as those of tokens are, the last one
};

// Reads one object. Errors are those of any step; of a sample too.
inline Result<AllSamples> read_all(BlockFormat& format, std::string_view contents,
                                   uint64_t block_bytes) {
  const auto object = object_of(contents);
  AllSamples all;
  MUSTER_TRY(all.extents, format.cut(object, block_bytes));
  if (all.extents.empty()) return all;
  MUSTER_TRY(const std::string about, format.about(object));
  MUSTER_RETURN_IF_ERROR(format.set_about(about));
  MUSTER_TRY(const auto notes, format.notes(object));
  bool first = true;
  for (size_t b = 0; b < all.extents.size(); ++b) {
    const Extent& extent = all.extents[b];
    // A copy of its own, so that sanitizers see reads beyond it.
    const std::string block = (notes.empty() ? std::string() : notes[b]) +
                              std::string(contents.substr(extent.offset, extent.length));
    const auto bytes = std::as_bytes(std::span(block));
    if (first) {
      MUSTER_TRY(all.schema, format.schema_of(bytes, extent.count));
    }
    first = false;
    MUSTER_TRY(const auto decoded, format.decode(bytes, extent.count, all.schema));
    for (uint32_t i = 0; i < extent.count; ++i) {
      std::vector<int64_t> input(all.schema.input_bytes() / 8 + 1);
      std::vector<int64_t> target(all.schema.target_bytes() / 8 + 1);
      MUSTER_RETURN_IF_ERROR(decoded->read(i, reinterpret_cast<std::byte*>(input.data()),
                                           reinterpret_cast<std::byte*>(target.data())));
      if (all.schema.input == DType::kFloat32) {
        const auto* floats = reinterpret_cast<const float*>(input.data());
        all.inputs.emplace_back(floats, floats + all.schema.input_elements());
      } else {
        input.resize(all.schema.input_elements());
        all.ids.push_back(std::move(input));
      }
      if (all.schema.target == DType::kInt64) {
        all.targets.push_back(static_cast<double>(target[all.schema.target_elements() - 1]));
      } else {
        float value = 0;
        std::memcpy(&value, target.data(), sizeof(value));
        all.targets.push_back(value);
      }
    }
  }
  return all;
}

// The same with the built-in format that the options name.
inline Result<AllSamples> read(std::string_view contents, const config::SourceOptions& options,
                               uint64_t block_bytes = 1 << 20) {
  MUSTER_TRY(const auto format, builtin_block_formats().at(options.format)(options));
  return read_all(*format, contents, block_bytes);
}

// The error of that; empty: there is none.
inline std::string failure(std::string_view contents, const config::SourceOptions& options) {
  const auto all = read(contents, options);
  return all.ok() ? "" : all.error().message();
}

// What the fuzzers of formats do with their bytes, of which the first is theirs: its highest bit
// makes blocks small, and the bytes of each are read in memory of their own.
inline int fuzz_format(const config::SourceOptions& options, const uint8_t* data, size_t size) {
  const std::string_view contents(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto format = builtin_block_formats().at(options.format)(options);
  MUSTER_CHECK(format.ok(), "the fuzzer's options are right");
  const auto all = read_all(**format, contents, (data[0] & 128) != 0 ? 1 : 4096);
  (void)all.ok();
  return 0;
}

// The same for formats of columns, which are in a plugin (column_plugin.h): the lowest three bits
// of the first byte set the options.
inline int fuzz_columns(const std::string& format, const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  config::SourceOptions options;
  options.format = format;
  options.classes = 4;
  const char* const inputs[] = {"{ input: [dense, more] }", "{ input: [half, byte, flag, maybe] }",
                                "{ input: image.bytes, shape: [1, 2, 3] }",
                                "{ input: image, size: 8 }"};
  options.args = args_of((data[0] & 4) == 0   ? inputs[data[0] % 4]
                         : (data[0] & 1) == 0 ? "{ ids: lengths, features: 2 }"
                                              : "{ ids: byte, values: dense, features: 3 }");
  return fuzz_format(options, data, size);
}

}  // namespace muster::data::testing
