// Helpers for this module's tests: files made on the spot, and a data set that says which sample it
// was asked for.
#pragma once

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>

#include "muster/data/dataset.h"

namespace muster::data::testing {

// A directory of its own, removed with everything in it.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "muster-data-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string path(std::string_view name) const { return path_ + "/" + std::string(name); }
  // Writes a file and returns its path.
  std::string write(std::string_view name, std::string_view contents) const {
    std::ofstream(path(name), std::ios::binary) << contents;
    return path(name);
  }

 private:
  std::string path_;
};

inline std::string gzip(std::string_view plain, int level = 6) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, plain.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// An IDX file: header and contents need not agree.
inline std::string idx(const std::vector<uint32_t>& dimensions, std::string_view contents,
                       uint8_t type = 0x08) {
  std::string file = {'\0', '\0', static_cast<char>(type), static_cast<char>(dimensions.size())};
  for (const uint32_t d : dimensions) {
    for (const int shift : {24, 16, 8, 0}) file.push_back(static_cast<char>(d >> shift & 0xff));
  }
  return file.append(contents);
}

inline std::string bytes(std::initializer_list<int> values) {
  std::string result;
  for (const int value : values) result.push_back(static_cast<char>(value));
  return result;
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Sample i is an image whose pixel j is i + j / 1000, with the target i.
class NumberedDataset final : public Dataset {
 public:
  explicit NumberedDataset(uint64_t size, std::vector<int64_t> shape = {1, 3, 4}) : size_(size) {
    schema_.input_shape = std::move(shape);
    schema_.classes = static_cast<int64_t>(size);
    schema_.padding = {-1};
  }
  const Schema& schema() const override { return schema_; }
  uint64_t size() const override { return size_; }
  void read(uint64_t index, std::byte* input, std::byte* target) const override {
    auto* to = reinterpret_cast<float*>(input);
    for (size_t j = 0; j < schema_.input_elements(); ++j) {
      to[j] = static_cast<float>(index) + static_cast<float>(j) / 1000;
    }
    *reinterpret_cast<int64_t*>(target) = static_cast<int64_t>(index);
  }

 private:
  uint64_t size_;
  Schema schema_;
};

// How many standard deviations a chi-square statistic lies above its mean. Seeds are fixed, so
// these tests cannot fail by chance: a value far out means that the construction got worse.
inline double excess(const std::vector<uint64_t>& counts) {
  const double total =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
  const double expected = total / static_cast<double>(counts.size());
  double chi2 = 0;
  for (const uint64_t count : counts) {
    const double off = static_cast<double>(count) - expected;
    chi2 += off * off / expected;
  }
  const auto freedom = static_cast<double>(counts.size() - 1);
  return (chi2 - freedom) / std::sqrt(2 * freedom);
}

}  // namespace muster::data::testing
