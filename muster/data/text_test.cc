#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/data/data_testing.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

using testing::as_bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

config::SourceOptions with_context(int64_t context) {
  config::SourceOptions options;
  options.format = "text";
  options.context = context;
  return options;
}

Result<std::unique_ptr<Dataset>> text(const std::string& contents,
                                      const config::SourceOptions& options) {
  MUSTER_TRY(auto reader, ByteReader::from_memory(as_bytes(contents), "x.txt"));
  return read_text(std::move(reader), options);
}

std::string failure(const std::string& contents, const config::SourceOptions& options) {
  auto dataset = text(contents, options);
  return dataset.ok() ? "" : dataset.error().message();
}

struct Sample {
  std::vector<int64_t> input;
  std::vector<int64_t> target;
};

Sample sample(const Dataset& dataset, uint64_t index) {
  const size_t context = dataset.schema().input_elements();
  Sample result{std::vector<int64_t>(context), std::vector<int64_t>(context)};
  dataset.read(index, reinterpret_cast<std::byte*>(result.input.data()),
               reinterpret_cast<std::byte*>(result.target.data()));
  return result;
}

TEST(TextTest, CutsCharactersIntoWindows) {
  auto dataset = text("hello", with_context(3));
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  const Schema& schema = (*dataset)->schema();
  EXPECT_THAT(schema.vocabulary, ElementsAre("e", "h", "l", "o"));
  EXPECT_EQ(schema.classes, 4);
  EXPECT_EQ(schema.input, DType::kInt64);
  EXPECT_THAT(schema.input_shape, ElementsAre(3));
  EXPECT_THAT(schema.target_shape, ElementsAre(3));
  ASSERT_EQ((*dataset)->size(), 2U);
  EXPECT_THAT(sample(**dataset, 0).input, ElementsAre(1, 0, 2));
  EXPECT_THAT(sample(**dataset, 0).target, ElementsAre(0, 2, 2));
  EXPECT_THAT(sample(**dataset, 1).target, ElementsAre(2, 2, 3));
}

TEST(TextTest, ReadsUtf8) {
  const std::string contents = "z\u00e9\u20ac\U0001F600z";  // one to four bytes each
  auto dataset = text(contents, with_context(4));
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_THAT((*dataset)->schema().vocabulary, ElementsAre("z", "\u00e9", "\u20ac", "\U0001F600"));
  EXPECT_THAT(sample(**dataset, 0).input, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(sample(**dataset, 0).target, ElementsAre(1, 2, 3, 0));
}

TEST(TextTest, LargeVocabulariesKeepAllTokens) {
  std::string contents;
  std::vector<int64_t> tokens;
  for (int i = 0; i < 700; ++i) {
    const int code = 0x4e00 + i * 9 % 700;  // every one once, mixed
    contents += static_cast<char>(0xe0 | code >> 12);
    contents += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    contents += static_cast<char>(0x80 | (code & 0x3f));
    tokens.push_back(1 + code - 0x4e00);
  }
  contents += 'A';  // sorts before all of them
  auto dataset = text(contents, with_context(700));
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_EQ((*dataset)->schema().classes, 701);
  EXPECT_EQ(sample(**dataset, 0).input, tokens);
  EXPECT_EQ(sample(**dataset, 0).target.back(), 0);
}

TEST(TextTest, ReadsBytes) {
  auto options = with_context(2);
  options.unit = "bytes";
  auto dataset = text("a\xff\x80z", options);
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_EQ((*dataset)->schema().classes, 256);
  EXPECT_TRUE((*dataset)->schema().vocabulary.empty());
  EXPECT_THAT(sample(**dataset, 1).input, ElementsAre(0xff, 0x80));
  EXPECT_THAT(sample(**dataset, 1).target, ElementsAre(0x80, 'z'));
}

TEST(TextTest, PartsShareTheVocabularyAndNoToken) {
  // '#' stands only in the second half, and '!' only in the first.
  const std::string contents = "abcabc!bcaabcabcab#a";
  auto train_options = with_context(2);
  train_options.part = {0, 0.5};
  auto test_options = with_context(2);
  test_options.part = {0.5, 1};
  auto train = text(contents, train_options);
  auto test = text(contents, test_options);
  ASSERT_TRUE(train.ok() && test.ok());
  EXPECT_EQ((*train)->schema().vocabulary, (*test)->schema().vocabulary);
  EXPECT_TRUE(check_compatible((*train)->schema(), (*test)->schema()).ok());
  EXPECT_EQ((*train)->size(), 8U);
  EXPECT_EQ((*test)->size(), 8U);
  EXPECT_THAT(sample(**train, 7).target, ElementsAre(4, 2)) << "ends with the 10th: c a";
  EXPECT_THAT(sample(**test, 0).input, ElementsAre(2, 3)) << "begins with the 11th: a b";
  test_options.limit = 3;
  EXPECT_EQ((*text(contents, test_options))->size(), 3U);
}

TEST(TextTest, RefusesWhatIsNotUtf8AndSaysWhere) {
  const std::string start = "fine\nstill ";
  for (const char* bad : {"\x80", "\xc3", "\xc0\xaf", "\xe2\x82", "\xed\xa0\x80",
                          "\xf4\x90\x80\x80", "\xff", "\xe0\x80\x80", "\xc3("}) {
    EXPECT_EQ(failure(start + bad, with_context(2)),
              "'x.txt' line 2 (byte 11) is not UTF-8; convert the file, or set `unit: bytes`");
  }
}

TEST(TextTest, RefusesWhatIsTooShort) {
  EXPECT_THAT(failure("abc", with_context(3)), HasSubstr("has 3 characters, too few"));
  EXPECT_EQ((*text("abcd", with_context(3)))->size(), 1U);
  EXPECT_THAT(failure(testing::gzip(""), with_context(3)), HasSubstr("'x.txt' holds nothing"));
  EXPECT_THAT(failure("abc", with_context(0)), HasSubstr("`context`"));
  auto options = with_context(1);
  options.unit = "words";
  EXPECT_THAT(failure("abc", options), HasSubstr("characters or bytes"));
}

TEST(TextTest, OpensAFile) {
  const testing::TempDir dir;
  auto options = with_context(2);
  EXPECT_THAT(Registry::builtin().open(options).error().message(), HasSubstr("`path`"));
  options.path = dir.write("x.txt", "abcabc");
  EXPECT_EQ((*Registry::builtin().open(options))->size(), 4U);
}

}  // namespace
}  // namespace muster::data
