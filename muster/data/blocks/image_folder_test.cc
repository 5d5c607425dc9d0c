// Image folders and LMDB: data sets that decode when a sample is read.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/decoding_dataset.h"
#include "muster/data/blocks/formats_testing.h"
#include "muster/data/data_testing.h"

namespace muster::data {
namespace {

using testing::args_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::testdata;
using testing::testdata_path;

config::SourceOptions options_of(std::string path, std::string_view args = "{}",
                                 int64_t classes = 0) {
  config::SourceOptions options;
  options.path = std::move(path);
  options.args = args_of(args);
  options.classes = classes;
  return options;
}

struct Sample {
  std::vector<float> input;
  int64_t target = -1;
  std::string error;
};

Sample sample(const Dataset& dataset, uint64_t i) {
  Sample result{std::vector<float>(dataset.schema().input_elements()), -1, ""};
  const auto status = dynamic_cast<const DecodingDataset&>(dataset).try_read(
      i, reinterpret_cast<std::byte*>(result.input.data()),
      reinterpret_cast<std::byte*>(&result.target));
  if (!status.ok()) result.error = status.error().message();
  return result;
}

void add(const TempDir& dir, const std::string& name, const std::string& contents) {
  std::filesystem::create_directories(std::filesystem::path(dir.path(name)).parent_path());
  dir.write(name, contents);
}

TEST(ImageFolderTest, NumbersClassesByNameBytewise) {
  const TempDir dir;
  const std::string jpeg = testdata("images/photo.jpg");
  const std::string png = testdata("images/photo.png");
  add(dir, "zebra/1.jpg", jpeg);
  add(dir, "Zoo/deeper/2.PNG", png);
  add(dir, "ant/b.jpeg", jpeg);
  add(dir, "ant/B.jpg", png);  // what a file is shows in its bytes
  add(dir, "ant/notes.txt", "no image");
  dir.write("README", "no class");
  auto dataset = open_image_folder(options_of(dir.path(""), "{ size: 16 }"));
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  ASSERT_EQ((*dataset)->size(), 4U);
  EXPECT_EQ((*dataset)->schema().classes, 3);
  EXPECT_THAT((*dataset)->schema().input_shape, ElementsAre(3, 16, 16));
  std::vector<int64_t> targets;
  for (uint64_t i = 0; i < 4; ++i) targets.push_back(sample(**dataset, i).target);
  EXPECT_THAT(targets, ElementsAre(0, 1, 1, 2)) << "Zoo, ant/B, ant/b, zebra";
  EXPECT_EQ(sample(**dataset, 0).input, sample(**dataset, 1).input);
  EXPECT_EQ(sample(**dataset, 2).input, sample(**dataset, 3).input);
}

TEST(ImageFolderTest, HashFollowsNamesAndContents) {
  const std::string jpeg = testdata("images/photo.jpg");
  const TempDir one;
  const TempDir two;
  for (const auto* dir : {&one, &two}) {
    add(*dir, "a/1.jpg", jpeg);
    add(*dir, "b/1.jpg", jpeg);
  }
  const auto hash = [](const TempDir& dir, std::string_view args) {
    return (*open_image_folder(options_of(dir.path(""), args)))->hash();
  };
  EXPECT_EQ(hash(one, "{}"), hash(two, "{}"));
  EXPECT_NE(hash(one, "{ size: 8 }"), hash(two, "{ size: 8, resize: 9 }"));
  add(two, "b/1.jpg", testdata("images/progressive.jpg"));
  EXPECT_NE(hash(one, "{}"), hash(two, "{}"));
}

TEST(HashedPiecesTest, AreAllOrAboutAsManyBytesAsAreMeant) {
  const HashedPieces all(uint64_t{1} << 30);
  for (uint64_t i = 0; i < 1000; ++i) EXPECT_TRUE(all.contains(i));
  for (const uint64_t total : {(uint64_t{1} << 30) + 1, uint64_t{1} << 34}) {
    const HashedPieces some(total);
    constexpr uint64_t kPieces = 100000;
    uint64_t pieces = 0;
    for (uint64_t i = 0; i < kPieces; ++i) pieces += some.contains(i) ? 1 : 0;
    const double bytes = static_cast<double>(pieces) / kPieces * static_cast<double>(total);
    EXPECT_GT(bytes, 200e6);
    EXPECT_LT(bytes, 280e6);
  }
}

// Files with holes take no room.
TEST(ImageFolderTest, OtherContentsOfLargeDataShowInTheHash) {
  const TempDir dir;
  add(dir, "a/1.jpg", testdata("images/photo.jpg"));
  constexpr int kFiles = 110;
  constexpr uint64_t kSize = 10 << 20;
  for (int i = 0; i < kFiles; ++i) {
    add(dir, fmt::format("b/{}.jpg", i), "x");
    std::filesystem::resize_file(dir.path(fmt::format("b/{}.jpg", i)), kSize);
  }
  const auto hash = [&] { return (*open_image_folder(options_of(dir.path(""))))->hash(); };
  const auto before = hash();
  EXPECT_EQ(hash(), before);
  for (int i = 0; i < kFiles; ++i) {
    const auto path = dir.path(fmt::format("b/{}.jpg", i));
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(kSize / 2) << "y";
    ASSERT_EQ(std::filesystem::file_size(path), kSize);
  }
  EXPECT_NE(hash(), before);
}

TEST(ImageFolderTest, SkipsLinksThatLeadNowhere) {
  const TempDir dir;
  add(dir, "a/1.jpg", testdata("images/photo.jpg"));
  std::filesystem::create_symlink("nowhere", dir.path("b"));
  std::filesystem::create_symlink("nowhere.jpg", dir.path("a/2.jpg"));
  std::filesystem::create_symlink("1.jpg", dir.path("a/3.jpg"));
  auto dataset = open_image_folder(options_of(dir.path("")));
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_EQ((*dataset)->size(), 2U);
  EXPECT_EQ(sample(**dataset, 1).error, "");
}

TEST(ImageFolderTest, AFileThatBecomesShorterIsAnErrorOfItsSample) {
  const TempDir dir;
  add(dir, "a/1.jpg", testdata("images/photo.jpg"));
  auto dataset = open_image_folder(options_of(dir.path("")));
  ASSERT_TRUE(dataset.ok());
  for (const uint64_t size : {1000, 0}) {
    std::filesystem::resize_file(dir.path("a/1.jpg"), size);
    EXPECT_THAT(sample(**dataset, 0).error, HasSubstr("a/1.jpg'"));
  }
  std::filesystem::remove(dir.path("a/1.jpg"));
  EXPECT_THAT(sample(**dataset, 0).error, HasSubstr("a/1.jpg'"));
}

TEST(ImageFolderTest, SaysWhatIsWrong) {
  const TempDir dir;
  const auto failure = [&](std::string_view args = "{}", int64_t classes = 0) {
    auto dataset = open_image_folder(options_of(dir.path(""), args, classes));
    return dataset.ok() ? "" : dataset.error().message();
  };
  EXPECT_THAT(failure(), HasSubstr("no directories"));
  add(dir, "a/1.jpg", testdata("images/photo.jpg"));
  add(dir, "b/2.jpg", testdata("images/tall.jpg"));
  std::filesystem::create_directories(dir.path("c"));
  EXPECT_THAT(failure(), HasSubstr("c' has no images"));
  add(dir, "c/3.jpg", testdata("images/photo.jpg").substr(0, 1000));
  EXPECT_THAT(failure("{}", 2), HasSubstr("3 directories, but `classes` is 2"));
  auto dataset = open_image_folder(options_of(dir.path("")));
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_THAT(sample(**dataset, 1).error,
              HasSubstr("b/2.jpg': the image has the shape [3, 90, 40]"));
  EXPECT_THAT(sample(**dataset, 2).error, HasSubstr("c/3.jpg': the JPEG image is damaged"));
  EXPECT_THAT((*open_image_folder(options_of(dir.path(""))))->size(), 3U);
}

TEST(LmdbTest, ReadsRawAndEncodedDatums) {
  auto raw = open_lmdb(options_of(testdata_path("raw.lmdb"), "{}", 2));
  ASSERT_TRUE(raw.ok()) << raw.error().message();
  ASSERT_EQ((*raw)->size(), 6U);
  EXPECT_THAT((*raw)->schema().input_shape, ElementsAre(3, 3, 4));
  for (uint64_t i = 0; i < 6; ++i) {
    const Sample found = sample(**raw, i);
    EXPECT_EQ(found.error, "");
    EXPECT_EQ(found.target, static_cast<int64_t>(i % 2));
  }
  auto encoded = open_lmdb(options_of(testdata_path("encoded.lmdb"), "{ size: 8 }", 3));
  ASSERT_TRUE(encoded.ok()) << encoded.error().message();
  EXPECT_THAT((*encoded)->schema().input_shape, ElementsAre(3, 8, 8));
  EXPECT_EQ(sample(**encoded, 2).target, 2);
  EXPECT_EQ(sample(**encoded, 2).error, "");
}

TEST(LmdbTest, SaysWhatIsWrong) {
  const TempDir dir;
  const auto failure = [](const config::SourceOptions& options) {
    auto dataset = open_lmdb(options);
    return dataset.ok() ? "" : dataset.error().message();
  };
  EXPECT_THAT(failure(options_of(dir.path("none"), "{}", 2)), HasSubstr("cannot read the LMDB"));
  EXPECT_THAT(failure(options_of(dir.write("x", std::string(9000, 'x')), "{}", 2)),
              HasSubstr("cannot read the LMDB"));
  auto raw = open_lmdb(options_of(testdata_path("raw.lmdb"), "{}", 1));
  ASSERT_TRUE(raw.ok());
  EXPECT_THAT(sample(**raw, 1).error, HasSubstr("entry 1: the label is 1"));
}

}  // namespace
}  // namespace muster::data
