#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/formats_testing.h"
#include "muster/data/blocks/token_file.h"
#include "muster/data/data_testing.h"

namespace muster::data {
namespace {

using testing::args_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::testdata;
using testing::testdata_path;

config::SourceOptions options_of(std::string path, std::string_view args = "{}") {
  config::SourceOptions options;
  options.format = "tokens";
  options.path = std::move(path);
  options.context = 64;
  options.classes = 50257;
  options.args = args_of(args);
  return options;
}

struct Window {
  std::vector<int64_t> input;
  std::vector<int64_t> target;
};

Window window(const Dataset& dataset, uint64_t i) {
  Window result{std::vector<int64_t>(dataset.schema().input_elements()),
                std::vector<int64_t>(dataset.schema().target_elements())};
  dataset.read(i, reinterpret_cast<std::byte*>(result.input.data()),
               reinterpret_cast<std::byte*>(result.target.data()));
  return result;
}

// The tokens that make.py writes.
int64_t token(int64_t i) { return i * 7919 % 50257; }

std::string plain(size_t count, size_t width) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) {
    const int64_t value = token(static_cast<int64_t>(i));
    bytes.append(reinterpret_cast<const char*>(&value), width);
  }
  return bytes;
}

std::string failure(const config::SourceOptions& options) {
  auto dataset = open_tokens(options);
  return dataset.ok() ? "" : dataset.error().message();
}

TEST(TokensTest, ReadsWindowsOutOfEveryKindOfFile) {
  const TempDir dir;
  const auto u16 = dir.write("u16.bin", plain(1000, 2));
  const auto u32 = dir.write("u32.bin", plain(1000, 4));
  for (const auto& options :
       {options_of(u16), options_of(u32, "{ type: uint32 }"),
        options_of(testdata_path("tokens.npy")), options_of(testdata_path("megatron.bin")),
        options_of(testdata_path("llmc.bin"))}) {
    auto dataset = open_tokens(options);
    ASSERT_TRUE(dataset.ok()) << dataset.error().message();
    EXPECT_EQ((*dataset)->size(), 15U) << options.path;  // 15 * 64 + 1 <= 1000 < 16 * 64 + 1
    EXPECT_EQ((*dataset)->schema().classes, 50257);
    for (uint64_t i = 0; i < 15; ++i) {
      const Window found = window(**dataset, i);
      for (int64_t k = 0; k < 64; ++k) {
        const auto at = static_cast<int64_t>(i) * 64 + k;
        ASSERT_EQ(found.input[static_cast<size_t>(k)], token(at)) << options.path;
        ASSERT_EQ(found.target[static_cast<size_t>(k)], token(at + 1)) << options.path;
      }
    }
  }
}

TEST(TokensTest, TheLastWindowEndsWithTheLastToken) {
  const TempDir dir;
  auto options = options_of(dir.write("a.bin", plain(129, 2)));
  auto dataset = open_tokens(options);
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ((*dataset)->size(), 2U);
  EXPECT_EQ(window(**dataset, 1).target.back(), token(128));
  options.path = dir.write("b.bin", plain(128, 2));
  EXPECT_EQ((*open_tokens(options))->size(), 1U);
  options.path = dir.write("c.bin", plain(64, 2));
  EXPECT_THAT(failure(options), HasSubstr("too few tokens"));
}

TEST(TokensTest, ReadsSeveralFilesInTheOrderOfTheirNames) {
  const TempDir dir;
  dir.write("part-b.bin", plain(10, 2));
  dir.write("part-a.bin", plain(7, 2));
  auto options = options_of(dir.path("part-*.bin"), "{ stride: 2 }");
  options.context = 3;
  auto dataset = open_tokens(options);
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  ASSERT_EQ((*dataset)->size(), 2U + 4U);
  EXPECT_THAT(window(**dataset, 1).input, ElementsAre(token(2), token(3), token(4)));
  EXPECT_THAT(window(**dataset, 2).input, ElementsAre(token(0), token(1), token(2)));
  EXPECT_THAT(window(**dataset, 5).target, ElementsAre(token(7), token(8), token(9)));
}

TEST(TokensTest, HashFollowsTheTokens) {
  const TempDir dir;
  auto one = open_tokens(options_of(dir.write("a.bin", plain(500, 2))));
  auto same = open_tokens(options_of(dir.write("b.bin", plain(500, 2))));
  std::string changed = plain(500, 2);
  changed[100] = static_cast<char>(changed[100] ^ 1);
  auto other = open_tokens(options_of(dir.write("c.bin", changed)));
  EXPECT_EQ((*one)->hash(), (*same)->hash());
  EXPECT_NE((*one)->hash(), (*other)->hash());
}

TEST(TokensTest, ATokenThatIsTooLargeIsFoundWhenItIsRead) {
  const TempDir dir;
  for (const size_t width : {size_t{2}, size_t{8}}) {
    std::string bytes = plain(10000, width);
    const int64_t bad = width == 2 ? 60000 : -1;
    std::memcpy(bytes.data() + 6400 * width, &bad, width);  // the first of window 100
    auto dataset = open_tokens(options_of(dir.write(fmt::format("{}.bin", width), bytes),
                                          width == 2 ? "{}" : "{ type: int64 }"));
    ASSERT_TRUE(dataset.ok()) << dataset.error().message();
    std::vector<int64_t> input(64);
    std::vector<int64_t> target(64);
    const auto read = [&](uint64_t i) {
      const auto status = (*dataset)->read_all({&i, 1}, reinterpret_cast<std::byte*>(input.data()),
                                               reinterpret_cast<std::byte*>(target.data()), {});
      return status.ok() ? "" : status.error().message();
    };
    EXPECT_EQ(read(98), "");
    EXPECT_THAT(read(99), HasSubstr("tokens 6,336 to 6,400: '")) << "the last of its target";
    EXPECT_THAT(read(100), HasSubstr(fmt::format(".bin' has the token {}, but `classes` is 50257",
                                                 static_cast<uint64_t>(bad))));
    EXPECT_EQ(read(101), "");
  }
}

// A file with holes, which takes no room: opening it does not read it, and its hash covers a part.
TEST(TokensTest, OtherContentsOfLargeDataShowInTheHash) {
  const TempDir dir;
  const auto path = dir.write("large.bin", plain(1000, 2));
  std::filesystem::resize_file(path, uint64_t{1100} << 20);
  const auto hash = [&] { return (*open_tokens(options_of(path)))->hash(); };
  const auto before = hash();
  EXPECT_EQ(hash(), before);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (int piece = 0; piece < 200; ++piece) file.seekp(int64_t{65536} * (piece + 100)) << "y";
  file.close();
  EXPECT_NE(hash(), before);
}

TEST(TokensTest, SaysWhatIsWrong) {
  const TempDir dir;
  auto options = options_of(dir.write("a.bin", plain(200, 2)));
  options.classes = 100;
  EXPECT_THAT(failure(options), HasSubstr("has the token"));
  options.classes = 0;
  EXPECT_THAT(failure(options), HasSubstr("needs `classes`"));
  EXPECT_THAT(failure(options_of(dir.write("odd.bin", "abc"))), HasSubstr("no multiple of 2"));
  EXPECT_THAT(failure(options_of(dir.path("none-*.bin"))), HasSubstr("no file matches"));
  EXPECT_THAT(failure(options_of(dir.path("none.bin"))), HasSubstr("cannot open"));
  EXPECT_THAT(failure(options_of(dir.path("a.bin"), "{ type: int12 }")), HasSubstr("`type`"));
}

TEST(TokenFileTest, RefusesDamagedHeaders) {
  const std::string npy = testdata("tokens.npy");
  const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  for (size_t size = 0; size < npy.size(); size += 11) {
    const std::string cut = npy.substr(0, size);
    EXPECT_FALSE(read_npy(bytes(cut)).ok()) << size;
  }
  const std::string bin = testdata("megatron.bin");
  const std::string idx = testdata("megatron.idx");
  for (size_t size = 0; size < idx.size(); ++size) {
    const std::string cut = idx.substr(0, size);
    EXPECT_FALSE(read_megatron(bytes(bin), bytes(cut)).ok()) << size;
  }
  const std::string shorter = bin.substr(4);
  auto wrong = read_megatron(bytes(shorter), bytes(idx));
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message(), HasSubstr("describes 4,000 bytes"));
}

}  // namespace
}  // namespace muster::data
