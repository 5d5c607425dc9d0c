#include "muster/data/byte_reader.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/data/data_testing.h"

namespace muster::data {
namespace {

using ::testing::AllOf;
using testing::as_bytes;
using testing::gzip;
using ::testing::HasSubstr;
using testing::TempDir;

// More than one chunk, and not all the same.
std::string long_text() {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += std::to_string(i * 7919 % 100003);
  return text;
}

TEST(ByteReaderTest, ReadsPlainAndGzippedFilesAlike) {
  const TempDir dir;
  const std::string text = long_text();
  // The names lie on purpose.
  for (const auto& path : {dir.write("plain.gz", text), dir.write("packed.txt", gzip(text)),
                           dir.write("stored", gzip(text, 0))}) {
    auto reader = ByteReader::open(path);
    ASSERT_TRUE(reader.ok()) << reader.error().message();
    EXPECT_GE(reader->at_most(), text.size());
    auto all = reader->read_all();
    ASSERT_TRUE(all.ok()) << all.error().message();
    EXPECT_TRUE(*all == text) << path;
  }
}

TEST(ByteReaderTest, SmallPiecesAddUp) {
  const std::string text = long_text();
  for (const std::string& file : {text, gzip(text)}) {
    auto reader = ByteReader::from_memory(as_bytes(file), "memory");
    ASSERT_TRUE(reader.ok());
    std::string all;
    std::vector<char> piece(1009);
    while (true) {
      auto got = reader->read(std::as_writable_bytes(std::span(piece)));
      ASSERT_TRUE(got.ok());
      all.append(piece.data(), *got);
      if (*got < piece.size()) break;
    }
    EXPECT_TRUE(all == text);
  }
}

TEST(ByteReaderTest, TakesSeveralGzipMembersAsOneFile) {
  const std::string file = gzip("one ") + gzip("two ") + gzip("three");
  auto reader = ByteReader::from_memory(as_bytes(file), "memory");
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(*reader->read_all(), "one two three");
}

std::string failure(const std::string& file) {
  auto reader = ByteReader::from_memory(as_bytes(file), "x.gz");
  if (!reader.ok()) return reader.error().message();
  auto all = reader->read_all();
  if (all.ok()) return "";
  EXPECT_EQ(all.error().kind(), ErrorKind::kData);
  return all.error().message();
}

TEST(ByteReaderTest, NoticesEveryCut) {
  const std::string file = gzip("some text that is long enough to be cut at many places");
  EXPECT_EQ(failure(file), "");
  for (size_t size = 2; size < file.size(); ++size) {
    EXPECT_THAT(failure(file.substr(0, size)), AllOf(HasSubstr("'x.gz'"), HasSubstr("cut short")))
        << size;
  }
}

TEST(ByteReaderTest, NoticesEveryFlippedBitThatMatters) {
  const std::string text = "some text that is long enough to be flipped at many places";
  const std::string file = gzip(text);
  int noticed = 0;
  for (size_t bit = size_t{10} * 8; bit < file.size() * 8; ++bit) {  // after the gzip header
    std::string damaged = file;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    auto reader = ByteReader::from_memory(as_bytes(damaged), "x.gz");
    ASSERT_TRUE(reader.ok());
    auto all = reader->read_all();
    if (all.ok()) {
      // The bits that fill up the last byte of the contents mean nothing.
      EXPECT_EQ(*all, text) << "bit " << bit;
    } else {
      ++noticed;
    }
  }
  EXPECT_GE(noticed, static_cast<int>((file.size() - 10) * 8) - 7);
}

TEST(ByteReaderTest, RefusesWhatFollowsAGzippedFile) {
  EXPECT_THAT(failure(gzip("text") + "more"), HasSubstr("goes on after the end"));
}

TEST(ByteReaderTest, SaysWhatIsWrongWithThePath) {
  const TempDir dir;
  const auto error = [](const std::string& path) { return ByteReader::open(path).error(); };
  EXPECT_EQ(error(dir.path("none")).kind(), ErrorKind::kIo);
  EXPECT_THAT(error(dir.path("none")).message(),
              AllOf(HasSubstr("none'"), HasSubstr("No such file"), HasSubstr("fetch_data.sh")));
  EXPECT_THAT(error(dir.path("")).message(), HasSubstr("is a directory"));
  EXPECT_THAT(error(dir.write("empty", "")).message(), HasSubstr("is empty"));
  EXPECT_THAT(error("/dev/null").message(), HasSubstr("not a regular file"));
  EXPECT_EQ(error(dir.write("empty", "")).kind(), ErrorKind::kData);
}

TEST(ByteReaderTest, BoundsWhatCanCome) {
  const std::string plain = "0123456789";
  auto reader = ByteReader::from_memory(as_bytes(plain), "memory");
  EXPECT_EQ(reader->at_most(), 10U);
  std::byte four[4];
  ASSERT_TRUE(reader->read(four).ok());
  EXPECT_EQ(reader->at_most(), 6U);
  // The densest file there is must still fit its bound.
  const std::string zeros(8'000'000, '\0');
  const std::string packed = gzip(zeros, 9);
  auto dense = ByteReader::from_memory(as_bytes(packed), "memory");
  EXPECT_GE(dense->at_most(), zeros.size());
  EXPECT_LT(dense->at_most(), 2 * zeros.size());
}

}  // namespace
}  // namespace muster::data
