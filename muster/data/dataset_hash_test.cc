// The hash of a data set: of what it contains, not of where it is or how it is stored.
#include <cstring>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "muster/data/data_testing.h"
#include "muster/data/dataset.h"

namespace muster::data {
namespace {

using testing::gzip;
using testing::TempDir;

Hash128 hash_of(const config::SourceOptions& options) {
  auto opened = Registry::builtin().open(options);
  EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message());
  return opened.ok() ? (*opened)->hash() : Hash128{};
}

std::string be32(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

// Six images of 2 by 3 pixels with labels 0, 1, 2, 0, 1, 2.
struct Images {
  std::string images = be32(0x803) + be32(6) + be32(2) + be32(3);
  std::string labels = be32(0x801) + be32(6) + std::string("\0\1\2\0\1\2", 6);
  Images() {
    for (char i = 0; i < 36; ++i) images += i;
  }
  config::SourceOptions write(const TempDir& folder, const std::string& name = "a") const {
    config::SourceOptions options;
    options.format = "idx";
    options.images = folder.write(name + "-images", images);
    options.labels = folder.write(name + "-labels", labels);
    return options;
  }
};

TEST(DatasetHash, OfImagesChangesWithEachByteAndNotWithTheFile) {
  const TempDir folder;
  const Images data;
  const Hash128 hash = hash_of(data.write(folder));
  EXPECT_EQ(hash_of(data.write(folder, "elsewhere")), hash);
  Images packed = data;
  packed.images = gzip(data.images);
  packed.labels = gzip(data.labels);
  EXPECT_EQ(hash_of(packed.write(folder)), hash);
  for (const size_t at : {size_t{16}, size_t{30}, data.images.size() - 1}) {
    Images other = data;
    other.images[at] ^= 1;
    EXPECT_NE(hash_of(other.write(folder)), hash) << "byte " << at;
  }
  Images other = data;
  other.labels[8] ^= 1;
  EXPECT_NE(hash_of(other.write(folder)), hash);
}

TEST(DatasetHash, IsOfTheSamplesInUse) {
  const TempDir folder;
  Images data;
  auto options = data.write(folder);
  options.limit = 3;
  options.classes = 3;
  const Hash128 first_half = hash_of(options);
  options.limit = 4;
  EXPECT_NE(hash_of(options), first_half);
  data.images.back() ^= 1;
  options = data.write(folder);
  options.limit = 3;
  options.classes = 3;
  EXPECT_EQ(hash_of(options), first_half) << "the last image is not in use";
  options.mean = {0.5};
  EXPECT_NE(hash_of(options), first_half) << "the samples have other values";
}

TEST(DatasetHash, OfATableChangesWithEachNumber) {
  const TempDir folder;
  config::SourceOptions options;
  options.format = "csv";
  options.header = false;
  const auto hash = [&](const std::string& text) {
    options.path = folder.write("table.csv", text);
    return hash_of(options);
  };
  const auto before = hash("1,2,0\n3,4,1\n5,6,0\n");
  EXPECT_EQ(hash("1.0,2,0\n3,4,1\n5,6e0,0\n"), before) << "the same numbers, written otherwise";
  EXPECT_NE(hash("1,2,0\n3,4,1\n5,7,0\n"), before);
  EXPECT_NE(hash("1,2,0\n3,4,1\n5,6,1\n"), before);
  EXPECT_NE(hash("3,4,1\n1,2,0\n5,6,0\n"), before) << "another order";
}

TEST(DatasetHash, OfTextChangesWithEachCharacterAndWithTheContext) {
  const TempDir folder;
  config::SourceOptions options;
  options.format = "text";
  options.context = 4;
  const auto hash = [&](const std::string& text) {
    options.path = folder.write("text", text);
    return hash_of(options);
  };
  const auto before = hash("abcabcabcabc");
  EXPECT_EQ(hash("abcabcabcabc"), before);
  EXPECT_NE(hash("abcabcabcabb"), before);
  EXPECT_NE(hash("xyzxyzxyzxyz"), before) << "the same tokens of another vocabulary";
  options.context = 5;
  EXPECT_NE(hash("abcabcabcabc"), before);
}

// A format from outside, which knows nothing of hashes.
class Numbers final : public Dataset {
 public:
  explicit Numbers(float last) : last_(last) { schema_.input_shape = {3}; }
  const Schema& schema() const override { return schema_; }
  uint64_t size() const override { return 5; }
  void read(uint64_t index, std::byte* input, std::byte* target) const override {
    const float x = index == 4 ? last_ : static_cast<float>(index);
    const float values[3] = {x, 1, 2};
    std::memcpy(input, values, sizeof(values));
    std::memset(target, 0, sizeof(int64_t));
  }

 private:
  Schema schema_;
  float last_;
};

TEST(DatasetHash, ByDefaultAllSamplesAreRead) {
  const Hash128 hash = Numbers(4).hash();
  EXPECT_EQ(Numbers(4).hash(), hash);
  EXPECT_NE(Numbers(4.000001F).hash(), hash);
  Hash128 elsewhere;
  std::thread([&] { elsewhere = Numbers(4).hash(); }).join();
  EXPECT_EQ(elsewhere, hash);
}

}  // namespace
}  // namespace muster::data
