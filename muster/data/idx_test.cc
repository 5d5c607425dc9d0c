#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/data/data_testing.h"
#include "muster/data/dataset.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

using testing::as_bytes;
using testing::bytes;
using ::testing::ElementsAre;
using testing::gzip;
using ::testing::HasSubstr;
using testing::idx;
using testing::TempDir;

// Three images of 2 x 2 pixels.
const std::string kPixels = bytes({0, 255, 51, 102, 1, 2, 3, 4, 9, 8, 7, 6});
const std::string kImages = idx({3, 2, 2}, kPixels);
const std::string kLabels = idx({3}, bytes({0, 2, 1}));

Result<std::unique_ptr<Dataset>> from_memory(const std::string& images, const std::string& labels,
                                             const config::SourceOptions& options = {}) {
  MUSTER_TRY(auto i, ByteReader::from_memory(as_bytes(images), "images"));
  MUSTER_TRY(auto l, ByteReader::from_memory(as_bytes(labels), "labels"));
  return read_idx(std::move(i), std::move(l), options);
}

std::string failure(const std::string& images, const std::string& labels,
                    const config::SourceOptions& options = {}) {
  auto dataset = from_memory(images, labels, options);
  return dataset.ok() ? "" : dataset.error().message();
}

struct Sample {
  std::vector<float> input;
  int64_t target = -1;
};

Sample sample(const Dataset& dataset, uint64_t index) {
  Sample result{.input = std::vector<float>(dataset.schema().input_elements())};
  dataset.read(index, std::as_writable_bytes(std::span(result.input)).data(),
               reinterpret_cast<std::byte*>(&result.target));
  return result;
}

TEST(IdxTest, ReadsImagesAndLabels) {
  auto dataset = from_memory(kImages, kLabels);
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  const Schema& schema = (*dataset)->schema();
  EXPECT_EQ((*dataset)->size(), 3U);
  EXPECT_THAT(schema.input_shape, ElementsAre(1, 2, 2));
  EXPECT_TRUE(schema.target_shape.empty());
  EXPECT_EQ(schema.classes, 3);
  EXPECT_THAT(schema.padding, ElementsAre(0.0F));
  EXPECT_THAT(sample(**dataset, 0).input, ElementsAre(0.0F, 1.0F, 0.2F, 0.4F));
  EXPECT_EQ(sample(**dataset, 1).target, 2);
}

TEST(IdxTest, ScalesToMeanAndDeviation) {
  config::SourceOptions options;
  options.mean = {0.5};
  options.deviation = {0.25};
  auto dataset = from_memory(kImages, kLabels, options);
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ(sample(**dataset, 0).input[0], -2.0F);
  EXPECT_EQ(sample(**dataset, 0).input[1], 2.0F);
  EXPECT_EQ(sample(**dataset, 0).input[2], static_cast<float>((51 / 255.0 - 0.5) / 0.25));
  EXPECT_THAT((*dataset)->schema().padding, ElementsAre(-2.0F))
      << "black, as it looks after scaling";
}

TEST(IdxTest, OpensFilesGzippedOrNot) {
  const TempDir dir;
  config::SourceOptions options;
  options.format = "idx";
  options.images = dir.write("images.gz", kImages);  // the name lies
  options.labels = dir.write("labels", gzip(kLabels));
  auto dataset = Registry::builtin().open(options);
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_EQ(sample(**dataset, 2).target, 1);
}

TEST(IdxTest, TakesOtherRanks) {
  auto vectors = from_memory(idx({3, 4}, kPixels), kLabels);
  ASSERT_TRUE(vectors.ok());
  EXPECT_THAT((*vectors)->schema().input_shape, ElementsAre(4));
  auto colours = from_memory(idx({1, 3, 2, 2}, kPixels), idx({1}, bytes({0})));
  ASSERT_TRUE(colours.ok());
  EXPECT_THAT((*colours)->schema().input_shape, ElementsAre(3, 2, 2));
}

TEST(IdxTest, PartAndLimitChooseSamples) {
  config::SourceOptions options;
  options.part = {0.34, 1};
  auto dataset = from_memory(kImages, kLabels, options);
  ASSERT_TRUE(dataset.ok());
  ASSERT_EQ((*dataset)->size(), 2U);
  EXPECT_EQ(sample(**dataset, 0).target, 2);
  EXPECT_EQ((*dataset)->schema().classes, 3) << "counted over the whole file";
  options.limit = 1;
  dataset = from_memory(kImages, kLabels, options);
  EXPECT_EQ((*dataset)->size(), 1U);
  options.part = {0, 0.2};
  EXPECT_THAT(failure(kImages, kLabels, options), HasSubstr("holds none of its 3 samples"));
  options.part = {0.5, 0.5};
  EXPECT_THAT(failure(kImages, kLabels, options), HasSubstr("two fractions"));
}

TEST(IdxTest, PartsTouchButDoNotOverlap) {
  const std::string images = idx({1000, 1}, std::string(1000, 'x'));
  const std::string labels = idx({1000}, std::string(1000, '\1'));
  for (int cut = 1; cut < 1000; cut += 7) {
    config::SourceOptions first;
    first.part = {0, cut / 1000.0};
    config::SourceOptions second;
    second.part = {cut / 1000.0, 1};
    EXPECT_EQ((*from_memory(images, labels, first))->size() +
                  (*from_memory(images, labels, second))->size(),
              1000U);
  }
}

TEST(IdxTest, ChecksLabels) {
  config::SourceOptions options;
  options.classes = 2;
  EXPECT_EQ(failure(kImages, kLabels, options),
            "'labels': sample 1 (the first is 0) has the label 2, but labels go from 0 to 1; "
            "correct the file, or set `classes: 3`");
  options.classes = 10;
  EXPECT_EQ((*from_memory(kImages, kLabels, options))->schema().classes, 10);
}

TEST(IdxTest, SaysWhatIsWrongWithAFile) {
  EXPECT_EQ(failure(kLabels, kImages),
            "'labels' holds images (3 dimensions), not labels; are `images` and `labels` swapped?");
  EXPECT_THAT(failure(kLabels, kLabels), HasSubstr("'images' holds labels"));
  EXPECT_EQ(failure(idx({2, 2, 2}, kPixels.substr(0, 8)), kLabels),
            "'images' has 2 images, but 'labels' has 3 labels; they do not belong together");
  EXPECT_EQ(failure(kImages + "x", kLabels),
            "'images' goes on after the 12 bytes that its header promises; fetch it again");
  EXPECT_EQ(failure("PNG pretending", kLabels),
            "'images' is not an IDX file: it starts with 50 4e 47 20, not with 00 00 08");
  EXPECT_THAT(failure(idx({3, 2, 2}, kPixels, 0x0D), kLabels), HasSubstr("32-bit floats"));
  EXPECT_THAT(failure(idx({0, 2, 2}, ""), kLabels), HasSubstr("holds no samples"));
  EXPECT_THAT(failure(idx({3, 0, 2}, ""), kLabels), HasSubstr("images without pixels"));
  EXPECT_THAT(failure(idx({1, 1, 1, 1, 1}, "x"), kLabels), HasSubstr("at most 4"));
  EXPECT_THAT(failure(gzip(kImages + "x"), kLabels), HasSubstr("goes on after"));
}

TEST(IdxTest, NoticesEveryCut) {
  for (const std::string& whole : {kImages, gzip(kImages)}) {
    for (size_t size = 1; size < whole.size(); ++size) {
      EXPECT_THAT(failure(whole.substr(0, size), kLabels), HasSubstr("'images'")) << size;
    }
  }
}

TEST(IdxTest, DoesNotBelieveALargeHeader) {
  // 2^32 - 1 in each dimension: the product does not even fit 64 bits.
  constexpr uint32_t kHuge = 0xffffffff;
  for (const auto& dimensions :
       {std::vector<uint32_t>{kHuge, kHuge, kHuge, kHuge}, std::vector<uint32_t>{kHuge, kHuge},
        std::vector<uint32_t>{1 << 20, 1 << 10, 1 << 10}}) {
    const std::string file = idx(dimensions, kPixels);
    EXPECT_THAT(failure(file, kLabels), HasSubstr("claims more bytes than the file can hold"));
    EXPECT_THAT(failure(gzip(file), kLabels),
                HasSubstr("claims more bytes than the file can hold"));
  }
}

TEST(IdxTest, ChecksOptions) {
  config::SourceOptions options;
  options.format = "idx";
  auto dataset = Registry::builtin().open(options);
  EXPECT_EQ(dataset.error().kind(), ErrorKind::kJob);
  EXPECT_THAT(dataset.error().message(), HasSubstr("`images` and `labels`"));
  for (const double bad : {0.0, -1.0, 1e-300}) {
    config::SourceOptions scaled;
    scaled.deviation = {bad};
    EXPECT_THAT(failure(kImages, kLabels, scaled), HasSubstr("deviation")) << bad;
  }
}

TEST(RegistryTest, KnowsFormatsByName) {
  config::SourceOptions options;
  options.format = "idy";
  const auto error = Registry::builtin().open(options).error();
  EXPECT_EQ(error.kind(), ErrorKind::kJob);
  EXPECT_THAT(error.message(), HasSubstr("did you mean 'idx'?"));
  EXPECT_THAT(error.message(),
              HasSubstr("the formats are arrow, csv, ctr, idx, images, jsonl, "
                        "libsvm, lmdb, mds, parquet, text, tfrecord, tokens and webdataset"));
}

TEST(RegistryTest, TakesFormatsFromOutside) {
  Registry registry = Registry::builtin();
  registry.add("numbers", [](const config::SourceOptions& options) {
    return std::unique_ptr<Dataset>(
        std::make_unique<testing::NumberedDataset>(static_cast<uint64_t>(options.limit)));
  });
  config::SourceOptions options;
  options.format = "numbers";
  options.limit = 12;
  EXPECT_EQ((*registry.open(options))->size(), 12U);
}

TEST(CompatibleTest, SaysWhatDiffers) {
  Schema train;
  train.input_shape = {1, 28, 28};
  train.classes = 10;
  EXPECT_TRUE(check_compatible(train, train).ok());
  Schema test = train;
  test.classes = 9;
  EXPECT_TRUE(check_compatible(train, test).ok()) << "a test set may lack a class";
  test.classes = 11;
  EXPECT_THAT(check_compatible(train, test).error().message(), HasSubstr("11 classes"));
  test = train;
  test.input_shape = {1, 32, 32};
  EXPECT_THAT(check_compatible(train, test).error().message(), HasSubstr("[1, 32, 32]"));
  test = train;
  test.vocabulary = {"a"};
  EXPECT_THAT(check_compatible(train, test).error().message(), HasSubstr("vocabulary"));
}

}  // namespace
}  // namespace muster::data
