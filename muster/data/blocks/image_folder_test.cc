// Image folders and LMDB: data sets that decode when a sample is read.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/config/source.h"
#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/decoding_dataset.h"
#include "muster/data/blocks/formats_testing.h"
#include "muster/data/blocks/image_classes.h"
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

TEST(ImageFolderTest, TestDataHasTheNumbersOfTheTrainingData) {
  const TempDir dir;
  const std::string jpeg = testdata("images/photo.jpg");
  for (const char* name : {"train/ant/1.jpg", "train/bee/1.jpg", "train/cat/1.jpg",
                           "test/ant/1.jpg", "test/cat/1.jpg"}) {
    add(dir, name, jpeg);
  }
  auto train = options_of(dir.path("train"), "{ size: 16 }");
  auto test = options_of(dir.path("test/"), "{ size: 16 }");
  train.format = test.format = "images";
  const auto targets = [](const config::SourceOptions& options) {
    const auto dataset = open_image_folder(options);
    EXPECT_TRUE(dataset.ok()) << dataset.error().message();
    std::vector<int64_t> found;
    if (!dataset.ok()) return found;
    for (uint64_t i = 0; i < (*dataset)->size(); ++i) found.push_back(sample(**dataset, i).target);
    return found;
  };
  EXPECT_THAT(targets(test), ElementsAre(0, 1)) << "alone";
  ASSERT_TRUE(number_classes_alike(train, test).ok());
  EXPECT_THAT(targets(test), ElementsAre(0, 2)) << "bee has no directory";
  EXPECT_EQ((*open_image_folder(test))->schema().classes, 3);
  add(dir, "test/dog/1.jpg", jpeg);
  EXPECT_THAT(open_image_folder(test).error().message(),
              HasSubstr("test/dog' is none of the 3 classes"));
  // The job's own order.
  train.args = args_of("{ size: 16, class_names: [cat, ant, bee] }");
  EXPECT_THAT(targets(train), ElementsAre(0, 1, 2));
  test = options_of(dir.path("test"), "{ size: 16 }");
  test.format = "images";
  std::filesystem::remove_all(dir.path("test/dog"));
  ASSERT_TRUE(number_classes_alike(train, test).ok());
  EXPECT_THAT(targets(test), ElementsAre(0, 1)) << "cat, ant";
}

TEST(ImageFolderTest, NamesOfClassesAreThoseOfDirectories) {
  const TempDir dir;
  for (const char* name : {"a/1.jpg", "b/1.jpg"}) add(dir, name, testdata("images/photo.jpg"));
  const auto failure = [&](std::string_view names) {
    const auto opened =
        open_image_folder(options_of(dir.path(""), fmt::format("{{ class_names: {} }}", names)));
    return opened.ok() ? std::string() : opened.error().message();
  };
  EXPECT_EQ(failure("[b, a]"), "");
  EXPECT_THAT(failure("[a, b, a]"), HasSubstr("has 'a' twice"));
  for (const char* name : {"''", "a/b", "..", "."}) {
    EXPECT_THAT(failure(fmt::format("[a, b, {}]", name)), HasSubstr("no name of a directory"));
  }
  EXPECT_THAT(failure("[a]"), HasSubstr("b' is none of the 1 classes"));
  EXPECT_THAT(failure("[]"), HasSubstr("class_names is the list"));
}

TEST(ImageFolderTest, SizesThatDifferAreNoticedWhenItIsOpened) {
  const TempDir dir;
  for (int i = 0; i < 40; ++i) {
    add(dir, fmt::format("a/{:02}.jpg", i),
        testdata(i < 30 ? "images/photo.jpg" : "images/tall.jpg"));
  }
  EXPECT_THAT(open_image_folder(options_of(dir.path(""))).error().message(),
              ::testing::AllOf(HasSubstr("images differ in size"), HasSubstr("set `size`")));
  EXPECT_TRUE(open_image_folder(options_of(dir.path(""), "{ size: 16 }")).ok());
  // One that was not looked at is found when it is read.
  for (int i = 0; i < 40; ++i) {
    add(dir, fmt::format("a/{:02}.jpg", i),
        testdata(i == 1 ? "images/tall.jpg" : "images/photo.jpg"));
  }
  const auto dataset = open_image_folder(options_of(dir.path("")));
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_THAT(sample(**dataset, 1).error,
              HasSubstr("a/01.jpg': the image has the shape [3, 90, 40]"));
}

TEST(ImageFolderTest, ImagesThatAreNotUsedMayHaveAnotherSize) {
  const TempDir dir;
  for (int i = 0; i < 8; ++i) {
    add(dir, fmt::format("a/{}.jpg", i), testdata(i < 4 ? "images/photo.jpg" : "images/tall.jpg"));
  }
  auto options = options_of(dir.path(""));
  for (const auto& part : std::vector<std::vector<double>>{{0, 0.5}, {0.5, 1}}) {
    options.part = part;
    const auto dataset = open_image_folder(options);
    ASSERT_TRUE(dataset.ok()) << dataset.error().message();
    for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(sample(**dataset, i).error, "");
  }
}

TEST(ImageFolderTest, WithoutLabelsAllImagesAreSamples) {
  const TempDir dir;
  add(dir, "2.jpg", testdata("images/photo.jpg"));
  add(dir, "deeper/1.png", testdata("images/photo.png"));
  add(dir, "10.jpg", testdata("images/tall.jpg"));
  dir.write("notes.txt", "no image");
  auto options = options_of(dir.path(""), "{ size: 16 }", 5);
  auto refused = open_image_folder(options);
  ASSERT_TRUE(refused.ok()) << "one class, 'deeper'";
  EXPECT_EQ((*refused)->size(), 1U);
  options.label = config::kNoLabel;
  auto dataset = open_image_folder(options);
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  ASSERT_EQ((*dataset)->size(), 3U);
  EXPECT_EQ((*dataset)->schema().classes, 5);
  for (uint64_t i = 0; i < 3; ++i) {
    const auto read = sample(**dataset, i);
    EXPECT_EQ(read.error, "");
    EXPECT_EQ(read.target, -1);
  }
  options.path = dir.path("none");
  EXPECT_THAT(open_image_folder(options).error().message(), HasSubstr("cannot list"));
  options.path = dir.path("");
  std::filesystem::remove_all(dir.path("deeper"));
  options.label = "";
  EXPECT_THAT(open_image_folder(options).error().message(), HasSubstr("--no-labels"));
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

TEST(ImageFolderTest, AFileThatCannotBeReadIsAnErrorOfTheHash) {
  const TempDir dir;
  add(dir, "a/1.jpg", testdata("images/photo.jpg"));
  add(dir, "b/1.jpg", testdata("images/photo.jpg"));
  const auto dataset = *open_image_folder(options_of(dir.path("")));
  const auto hash = dataset->try_hash();
  ASSERT_TRUE(hash.ok()) << hash.error().message();
  EXPECT_EQ(*hash, dataset->hash());
  std::filesystem::remove(dir.path("b/1.jpg"));
  const auto failed = dataset->try_hash();
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message(), HasSubstr("b/1.jpg'"));
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

TEST(ImageFolderTest, SkipsHiddenFilesAndDirectories) {
  const TempDir dir;
  const std::string jpeg = testdata("images/photo.jpg");
  add(dir, "a/1.jpg", jpeg);
  const auto open = [&](std::string_view label) {
    auto options = options_of(dir.path(""));
    options.label = label;
    options.classes = 1;
    auto dataset = open_image_folder(options);
    EXPECT_TRUE(dataset.ok()) << dataset.error().message();
    return *std::move(dataset);
  };
  const auto hash = open("")->hash();
  for (const char* name : {"a/._1.jpg", "a/.ipynb_checkpoints/1-checkpoint.jpg",
                           "a/deeper/.cache/more/2.jpg", ".Trash/3.jpg", "._4.jpg"}) {
    add(dir, name, jpeg);
  }
  EXPECT_EQ(open("")->size(), 1U);
  EXPECT_EQ(open("")->hash(), hash);
  EXPECT_EQ(open(config::kNoLabel)->size(), 1U);
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
  auto dataset = open_image_folder(options_of(dir.path(""), "{ size: 16 }"));
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_EQ((*dataset)->size(), 3U);
  EXPECT_EQ(sample(**dataset, 1).error, "");
  EXPECT_THAT(sample(**dataset, 2).error, HasSubstr("c/3.jpg': the JPEG image is damaged"));
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

TEST(LmdbTest, AFileThatWasCutOffIsRefused) {
  const TempDir dir;
  const std::string whole = testdata("raw.lmdb");
  for (const size_t size : {whole.size() - 1, whole.size() - 4000, size_t{8192}}) {
    const auto path = dir.write("x.lmdb", whole.substr(0, size));
    const auto cut = open_lmdb(options_of(path, "{}", 2));
    ASSERT_FALSE(cut.ok()) << size;
    EXPECT_EQ(cut.error().kind(), ErrorKind::kData);
    EXPECT_THAT(cut.error().message(),
                ::testing::AllOf(HasSubstr("x.lmdb' has"), HasSubstr("it was cut off")));
  }
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
