#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/crc32c.h"
#include "muster/base/hash.h"
#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/formats_testing.h"
#include "muster/data/data_testing.h"

namespace muster::data {
namespace {

using testing::args_of;
using ::testing::ElementsAre;
using testing::failure;
using ::testing::HasSubstr;
using testing::read;
using testing::testdata;

config::SourceOptions numbers_options() {
  config::SourceOptions options;
  options.format = "tfrecord";
  options.classes = 3;
  options.args = args_of("{ input: [dense, more] }");
  return options;
}

TEST(TfRecordTest, ReadsFloatsAndIntegersThatTensorFlowWrote) {
  auto all = read(testdata("numbers.tfrecord"), numbers_options());
  ASSERT_TRUE(all.ok()) << all.error().message();
  ASSERT_EQ(all->inputs.size(), 10U);
  EXPECT_THAT(all->schema.input_shape, ElementsAre(6));
  EXPECT_THAT(all->inputs[0], ElementsAre(0.5F, -1.25F, 3e4F, 0, 0, 1099511627776.0F));
  EXPECT_THAT(all->inputs[4], ElementsAre(4.5F, -1.25F, 3e4F, 4, -4, 1099511627776.0F));
  EXPECT_THAT(all->targets, ElementsAre(0, 1, 2, 0, 1, 2, 0, 1, 2, 0));
}

TEST(TfRecordTest, ListsOfIdsHaveNoneBelowZero) {
  auto options = numbers_options();
  options.args = args_of("{ ids: more, features: 3 }");
  EXPECT_THAT(failure(testdata("numbers.tfrecord"), options),
              HasSubstr("sample 1 of the block: 'more' has -1, which is not an id"));
}

TEST(TfRecordTest, SamplesDoNotDependOnHowItIsCutOrGzipped) {
  const auto options = numbers_options();
  auto whole = read(testdata("numbers.tfrecord"), options);
  auto cut = read(testdata("numbers.tfrecord"), options, 200);
  auto single = read(testdata("numbers.tfrecord"), options, 1);
  auto gzipped = read(testdata("numbers.tfrecord.gz"), options, 1);
  ASSERT_TRUE(whole.ok() && cut.ok() && single.ok() && gzipped.ok());
  EXPECT_EQ(whole->extents.size(), 1U);
  EXPECT_EQ(cut->extents.size(), 5U);
  EXPECT_EQ(single->extents.size(), 10U);
  EXPECT_EQ(gzipped->extents.size(), 1U);
  EXPECT_EQ(whole->inputs, cut->inputs);
  EXPECT_EQ(whole->inputs, single->inputs);
  EXPECT_EQ(whole->inputs, gzipped->inputs);
}

// A field of a protocol buffer message.
std::string field(int number, const std::string& contents) {
  std::string bytes(1, static_cast<char>(number * 8 + 2));
  size_t left = contents.size();
  for (; left >= 128; left /= 128) bytes += static_cast<char>(left % 128 + 128);
  bytes += static_cast<char>(left);
  return bytes + contents;
}

// A record of this length, with the features x (a float) and label, and one that fills it up.
std::string record_of_length(size_t length, float x, char label) {
  const auto feature = [](const std::string& name, const std::string& value) {
    return field(1, field(1, name) + field(2, value));
  };
  const std::string floats(reinterpret_cast<const char*>(&x), sizeof(x));
  std::string example;
  for (size_t fill = length - 100; example.size() != length; fill += length - example.size()) {
    example = field(1, feature("x", field(2, field(1, floats))) +
                           feature("label", field(3, field(1, std::string(1, label)))) +
                           feature("fill", field(1, field(1, std::string(fill, '.')))));
  }
  const auto with_checksum = [](const std::string& contents) {
    const uint32_t crc = masked_crc32c(std::as_bytes(std::span(contents)));
    return contents + std::string(reinterpret_cast<const char*>(&crc), sizeof(crc));
  };
  const uint64_t size = length;
  return with_checksum(std::string(reinterpret_cast<const char*>(&size), sizeof(size))) +
         with_checksum(example);
}

TEST(TfRecordTest, ALengthThatLooksLikeGzipIsALength) {
  auto options = numbers_options();
  options.args = args_of("{ input: x }");
  for (const size_t length : {size_t{0x8b1f}, size_t{0x088b1f}}) {
    const std::string record = record_of_length(length, 1.5F, 2);
    std::string file = record;
    file.append(record_of_length(1000, 2.5F, 1)).append(record);
    for (const uint64_t block_bytes : {uint64_t{1}, uint64_t{1} << 22}) {
      for (const std::string& contents : {file, testing::gzip(file)}) {
        auto all = read(contents, options, block_bytes);
        ASSERT_TRUE(all.ok()) << length << ": " << all.error().message();
        ASSERT_EQ(all->inputs.size(), 3U);
        EXPECT_THAT(all->inputs[2], ElementsAre(1.5F));
        EXPECT_THAT(all->targets, ElementsAre(2, 1, 2));
      }
    }
  }
}

TEST(TfRecordTest, ReadsImagesByTheNamesOfImageNet) {
  config::SourceOptions options;
  options.format = "tfrecord";
  options.label = "image/class/label";
  options.classes = 5;
  options.args = args_of("{ input: image/encoded, size: [8, 12], first_label: 1 }");
  auto all = read(testdata("images.tfrecord"), options, 1000);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_THAT(all->schema.input_shape, ElementsAre(3, 8, 12));
  EXPECT_THAT(all->targets, ElementsAre(0, 1, 2, 3, 4));
  for (const auto& input : all->inputs) {
    EXPECT_TRUE(std::ranges::all_of(input, [](float x) { return x >= 0 && x <= 1; }));
  }
  options.args = args_of("{ input: image/encoded, first_label: 1 }");
  all = read(testdata("images.tfrecord"), options, 1000);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_THAT(all->schema.input_shape, ElementsAre(3, 16, 24)) << "that of the first image";
}

TEST(TfRecordTest, FindsEveryChangedByte) {
  const std::string good = testdata("numbers.tfrecord");
  const auto options = numbers_options();
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    EXPECT_NE(failure(bad, options), "") << "byte " << i;
  }
}

TEST(TfRecordTest, FindsWhereAFileIsCutShort) {
  const std::string good = testdata("numbers.tfrecord");
  const auto options = numbers_options();
  size_t whole = 0;
  for (size_t size = 1; size < good.size(); ++size) {
    if (failure(good.substr(0, size), options).empty()) ++whole;
  }
  EXPECT_EQ(whole, 9U) << "only between records";
}

TEST(TfRecordTest, SaysWhatIsWrong) {
  auto options = numbers_options();
  const std::string good = testdata("numbers.tfrecord");
  options.args = args_of("{ input: dence }");
  EXPECT_THAT(failure(good, options), HasSubstr("no feature 'dence' (did you mean 'dense'?)"));
  options.args = args_of("{ input: dense }");
  options.classes = 2;
  EXPECT_THAT(failure(good, options), HasSubstr("sample 2 of the block: the label is 2"));
  options.classes = 0;
  EXPECT_THAT(failure(good, options), HasSubstr("needs `classes`"));
  options.classes = 3;
  options.args = args_of("{ inputs: dense }");
  EXPECT_THAT(failure(good, options), HasSubstr("input"));
  options.args = args_of("{ input: dense, shape: [2, 2] }");
  EXPECT_THAT(failure(good, options), HasSubstr("the input has 3 numbers, but its shape [2, 2]"));
  options.args = args_of("{ input: dense }");
  EXPECT_THAT(failure("not a TFRecord file at all", options), HasSubstr("not TFRecord"));
}

}  // namespace
}  // namespace muster::data
