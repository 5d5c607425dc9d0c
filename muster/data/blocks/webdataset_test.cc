#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/text.h"
#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/formats_testing.h"
#include "muster/data/blocks/tar_reader.h"

namespace muster::data {
namespace {

using testing::args_of;
using ::testing::ElementsAre;
using testing::failure;
using ::testing::HasSubstr;
using testing::read;
using testing::testdata;

Result<std::vector<TarEntry>> entries_of(const std::string& archive) {
  TarReader tar(
      archive.size(),
      [&](uint64_t offset, size_t length) {
        return Result<std::span<const std::byte>>(
            std::as_bytes(std::span(archive)).subspan(offset, length));
      },
      true);
  std::vector<TarEntry> entries;
  while (true) {
    TarEntry entry;
    MUSTER_TRY(const bool more, tar.next(entry));
    if (!more) return entries;
    entries.push_back(entry);
  }
}

config::SourceOptions options_of(std::string_view args) {
  config::SourceOptions options;
  options.format = "webdataset";
  options.classes = 3;
  options.args = args_of(args);
  return options;
}

TEST(TarReaderTest, ListsWhatPythonLists) {
  std::istringstream listing(testdata("tar-listing.txt"));
  std::map<std::string, std::vector<std::string>> expected;
  for (std::string line; std::getline(listing, line);) {
    const auto cells = split(line, '\t');
    expected[cells[0]].push_back(cells[3] + " " + cells[1] + " " + cells[2]);
  }
  ASSERT_EQ(expected.size(), 4U);
  for (const auto& [name, files] : expected) {
    auto entries = entries_of(testdata(name));
    ASSERT_TRUE(entries.ok()) << name << ": " << entries.error().message();
    std::vector<std::string> found;
    for (const auto& entry : *entries) {
      found.push_back(fmt::format("{} {} {}", entry.name, entry.data, entry.size));
    }
    EXPECT_EQ(found, files) << name;
  }
}

TEST(TarReaderTest, FindsChangedHeadersAndMissingEnds) {
  const std::string good = testdata("names-ustar.tar");
  for (size_t i = 0; i < 512; ++i) {
    if (i == 155) continue;  // what follows the checksum's digits has no meaning
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_FALSE(entries_of(bad).ok()) << "byte " << i;
  }
  for (size_t size = 0; size < good.size(); size += 512) {
    auto entries = entries_of(good.substr(0, size));
    if (!entries.ok()) continue;
    EXPECT_GE(size, entries->back().end + 1024) << "whole only with its end mark";
  }
  EXPECT_FALSE(entries_of(good + good).ok());
}

TEST(WebDatasetTest, ReadsImagesAndClasses) {
  auto all = read(testdata("images.tar"), options_of("{ size: 8 }"), 5000);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_GT(all->extents.size(), 1U);
  EXPECT_THAT(all->schema.input_shape, ElementsAre(3, 8, 8));
  EXPECT_THAT(all->targets, ElementsAre(0, 1, 2, 0));
  auto whole = read(testdata("images.tar"), options_of("{ size: 8 }"));
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->extents.size(), 1U);
  EXPECT_EQ(whole->inputs, all->inputs);
}

TEST(WebDatasetTest, ReadsNumbersOutOfJson) {
  auto options = options_of("{ input: 'json:box' }");
  options.label = "json:label";
  auto all = read(testdata("images.tar"), options);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_THAT(all->inputs[3], ElementsAre(3, 1, 2.5F));
  EXPECT_THAT(all->targets, ElementsAre(0, 1, 2, 0));
}

TEST(WebDatasetTest, GroupsFilesByNameUpToTheFirstDot) {
  auto options = options_of("{ input: cls }");
  options.classes = 4;
  for (const std::string name : {"names-gnu.tar", "names-pax.tar", "names-ustar.tar"}) {
    for (const uint64_t block_bytes : {1, 3000, 1 << 20}) {
      auto all = read(testdata(name), options, block_bytes);
      ASSERT_TRUE(all.ok()) << name << ": " << all.error().message();
      EXPECT_THAT(all->targets, ElementsAre(1, 2, 3)) << name;
    }
  }
}

// A file of an archive (ustar), empty.
std::string tar_entry(const std::string& name) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(100, 7, "0000644");
  header.replace(124, 11, "00000000000");
  header.replace(148, 8, 8, ' ');
  header[156] = '0';
  header.replace(257, 8, std::string("ustar\00000", 8));
  unsigned sum = 0;
  for (const unsigned char c : header) sum += c;
  header.replace(148, 7, fmt::format("{:06o}", sum) + '\0');
  return header;
}

TEST(WebDatasetTest, RefusesSamplesWithVeryManyParts) {
  std::string archive;
  for (int i = 0; i < 1000; ++i) archive += tar_entry(fmt::format("sample.{}", i));
  auto format = make_webdataset(options_of("{}"));
  const std::string end(1024, '\0');
  const std::string good = archive + end;
  EXPECT_TRUE((*format)->cut(testing::object_of(good), 1 << 20).ok());
  const std::string bad = archive + tar_entry("sample.more") + end;
  const auto cut = (*format)->cut(testing::object_of(bad), 1 << 20);
  ASSERT_FALSE(cut.ok());
  EXPECT_THAT(cut.error().message(), HasSubstr("'sample' has more than 1000 parts"));
}

TEST(WebDatasetTest, SaysWhatIsWrong) {
  const std::string archive = testdata("images.tar");
  auto options = options_of("{}");
  options.label = "class";
  EXPECT_THAT(failure(archive, options),
              HasSubstr("sample 0 of the block ('train/n000'): there is no part 'class'"));
  options.label = "json:lable";
  EXPECT_THAT(failure(archive, options), HasSubstr("no number 'lable' (did you mean 'label'?)"));
  options = options_of("{}");
  options.classes = 2;
  EXPECT_THAT(failure(archive, options), HasSubstr("the label is 2"));
  EXPECT_THAT(failure("x", options), HasSubstr("cut short"));
  const size_t jpeg = archive.find("\xff\xd8\xff");
  std::string bad = archive;
  bad.replace(jpeg + 300, 200, 200, '\xff');
  EXPECT_THAT(failure(bad, options_of("{}")), HasSubstr("part 'jpg;png;jpeg': the JPEG image"));
}

}  // namespace
}  // namespace muster::data
