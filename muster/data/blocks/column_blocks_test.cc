// Files that pyarrow wrote. Without the plugin that reads them, these tests are skipped.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/blocks_testing.h"
#include "muster/data/blocks/column_plugin.h"
#include "muster/data/blocks/formats_testing.h"
#include "muster/data/blocks/open_blocks.h"

namespace muster::data {
namespace {

using testing::args_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_all;
using testing::testdata;

class ColumnsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto plugin = load_column_plugin("parquet");
    if (!plugin.ok()) GTEST_SKIP() << plugin.error().message();
  }

  static config::SourceOptions options(const std::string& args, int64_t classes = 3) {
    config::SourceOptions result;
    result.format = "parquet";
    result.classes = classes;
    result.args = args_of(args);
    return result;
  }

  static Result<testing::AllSamples> read(const std::string& contents,
                                          config::SourceOptions options, bool parquet) {
    options.format = parquet ? "parquet" : "arrow";
    MUSTER_TRY(auto format, parquet ? make_parquet(options) : make_arrow(options));
    return read_all(*format, contents, 1);
  }

  static Result<testing::AllSamples> read_file(const std::string& name,
                                               const config::SourceOptions& options) {
    return read(testdata(name), options, name.ends_with(".parquet"));
  }

  static std::string failure(const std::string& name, const config::SourceOptions& options) {
    const auto all = read_file(name, options);
    return all.ok() ? "" : all.error().message();
  }

  static const std::vector<std::string>& number_files() {
    static const std::vector<std::string> names = {"numbers.parquet", "numbers-v2.parquet",
                                                   "numbers.arrow", "numbers.arrows",
                                                   "numbers.feather"};
    return names;
  }
};

TEST_F(ColumnsTest, ReadsListsOfNumbers) {
  for (const auto& name : number_files()) {
    SCOPED_TRACE(name);
    const auto all = read_file(name, options("{ input: [dense, more] }"));
    ASSERT_TRUE(all.ok()) << all.error().message();
    ASSERT_EQ(all->inputs.size(), 10U);
    EXPECT_THAT(all->inputs[0], ElementsAre(0.5F, -1.25F, 3e4F, 0, 0, 1099511627776.0F));
    EXPECT_THAT(all->inputs[4], ElementsAre(4.5F, -1.25F, 3e4F, 4, -4, 1099511627776.0F));
    EXPECT_THAT(all->targets, ElementsAre(0, 1, 2, 0, 1, 2, 0, 1, 2, 0));
  }
}

TEST_F(ColumnsTest, BlocksAreRowGroupsAndRecordBatches) {
  for (const auto& name : number_files()) {
    SCOPED_TRACE(name);
    const auto all = read_file(name, options("{ input: dense }"));
    ASSERT_TRUE(all.ok()) << all.error().message();
    const bool whole = name == "numbers-v2.parquet" || name == "numbers.arrows";
    EXPECT_EQ(all->extents.size(), whole ? 1U : 3U);
    EXPECT_EQ(all->extents.back().count, whole ? 10U : 2U);
  }
}

TEST_F(ColumnsTest, ReadsOtherTypes) {
  for (const auto& name : number_files()) {
    SCOPED_TRACE(name);
    const auto all = read_file(name, options("{ input: [half, byte, flag] }"));
    ASSERT_TRUE(all.ok()) << all.error().message();
    EXPECT_THAT(all->inputs[5], ElementsAre(1.25F, 255, 0));
    EXPECT_THAT(all->inputs[6], ElementsAre(1.5F, 250, 1));
    const auto pixels = read_file(name, options("{ input: image.bytes, shape: [1, 2, 3] }"));
    ASSERT_TRUE(pixels.ok()) << pixels.error().message();
    EXPECT_TRUE(pixels->schema.pixels);
    EXPECT_THAT(pixels->inputs[9], ElementsAre(9 / 255.0F, 2 / 255.0F, 3 / 255.0F, 4 / 255.0F,
                                               5 / 255.0F, 6 / 255.0F));
  }
}

TEST_F(ColumnsTest, ReadsListsOfIdsOfAnyLength) {
  for (const auto& name : number_files()) {
    SCOPED_TRACE(name);
    const auto all = read_file(name, options("{ ids: lengths, features: 3 }"));
    ASSERT_TRUE(all.ok()) << all.error().message();
    ASSERT_EQ(all->ids.size(), 10U);
    EXPECT_THAT(all->ids[0], ElementsAre(-1, -1, -1));
    EXPECT_THAT(all->ids[1], ElementsAre(0, -1, -1));
    EXPECT_THAT(all->ids[7], ElementsAre(0, 1, 2));
    EXPECT_THAT(all->targets, ElementsAre(0, 1, 2, 0, 1, 2, 0, 1, 2, 0));
    const auto with = read_file(name, options("{ ids: byte, values: half, features: 2 }"));
    ASSERT_TRUE(with.ok()) << with.error().message();
    EXPECT_THAT(with->ids[6], ElementsAre(250, -1, value_bits(1.5F), 0));
    EXPECT_THAT(failure(name, options("{ ids: lengths, features: 2 }")),
                HasSubstr("row 3 of the block: 'lengths' has 3 ids, but `features` is 2"));
    EXPECT_THAT(failure(name, options("{ ids: name, features: 2 }")),
                HasSubstr("'name' has bytes instead of numbers"));
    EXPECT_THAT(failure(name, options("{ ids: dense, features: 3 }")),
                HasSubstr("'dense' has 0.5, which is not an id"));
  }
}

TEST_F(ColumnsTest, ReadsImages) {
  const auto images = read_file("images.parquet", options("{ input: image, size: [8, 12] }", 5));
  ASSERT_TRUE(images.ok()) << images.error().message();
  EXPECT_THAT(images->schema.input_shape, ElementsAre(3, 8, 12));
  EXPECT_THAT(images->targets, ElementsAre(0, 1, 2, 3, 4));
  // The same images by another way.
  config::SourceOptions records;
  records.format = "tfrecord";
  records.label = "image/class/label";
  records.classes = 5;
  records.args = args_of("{ input: image/encoded, size: [8, 12], first_label: 1 }");
  auto format = make_tfrecord(records);
  ASSERT_TRUE(format.ok());
  const auto others = read_all(**format, testdata("images.tfrecord"), 1000);
  ASSERT_TRUE(others.ok());
  EXPECT_EQ(images->inputs, others->inputs);
}

TEST_F(ColumnsTest, SaysWhatIsWrong) {
  for (const auto& name : number_files()) {
    SCOPED_TRACE(name);
    EXPECT_THAT(failure(name, options("{ input: dence }")),
                HasSubstr("no column 'dence' (did you mean 'dense'?)"));
    EXPECT_THAT(failure(name, options("{ input: [dense, maybe] }")), HasSubstr("no value (null)"));
    EXPECT_THAT(failure(name, options("{ input: lengths }")),
                HasSubstr("the input has no numbers"));
    EXPECT_THAT(failure(name, options("{ input: [lengths, dense] }")),
                HasSubstr("row 1 of the block: column 'dense' has 3 numbers"));
    EXPECT_THAT(failure(name, options("{ input: [dense, name] }")), HasSubstr("the only input"));
    EXPECT_NE(failure(name, options("{ input: image }")), "");
  }
}

// Every byte matters, of what is read: pages have checksums.
TEST_F(ColumnsTest, FindsChangedBytesOfParquet) {
  const std::string good = testdata("numbers-v2.parquet");
  const auto wanted = options("{ input: [dense, more] }");
  const auto expected = read(good, wanted, true);
  ASSERT_TRUE(expected.ok()) << expected.error().message();
  size_t found = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    const auto all = read(bad, wanted, true);
    found += all.ok() ? 0 : 1;
    // Other columns, and what is not needed of the footer, may change.
    if (all.ok()) {
      EXPECT_EQ(all->inputs, expected->inputs) << "byte " << i;
    }
  }
  EXPECT_GT(found, 300U);
}

TEST_F(ColumnsTest, FilesThatAreCutShortAreRefused) {
  for (const std::string name : {"numbers.parquet", "numbers.arrow"}) {
    const std::string good = testdata(name);
    const auto whole = read_file(name, options("{ input: dense }"));
    ASSERT_TRUE(whole.ok());
    for (size_t size = 0; size < good.size(); size += 13) {
      const auto all =
          read(good.substr(0, size), options("{ input: dense }"), name == "numbers.parquet");
      // An Arrow file may lack its footer.
      if (all.ok()) {
        EXPECT_EQ(all->inputs, whole->inputs) << name << " " << size;
      }
    }
  }
}

// A struct in Thrift's compact form, with fields in ascending order.
class Thrift {
 public:
  static std::string varint(uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
    bytes.push_back(static_cast<char>(value));
    return bytes;
  }
  static std::string number(uint64_t value) { return varint(2 * value); }
  static std::string text(const std::string& value) { return varint(value.size()) + value; }

  Thrift& i32(int id, uint64_t value) { return add(id, 5, number(value)); }
  Thrift& i64(int id, uint64_t value) { return add(id, 6, number(value)); }
  Thrift& string(int id, const std::string& value) { return add(id, 8, text(value)); }
  Thrift& structure(int id, const Thrift& value) { return add(id, kStruct, value.end()); }
  // Of fewer than 15 elements.
  Thrift& list(int id, int type, const std::vector<std::string>& elements) {
    std::string all(1, static_cast<char>(elements.size() << 4 | static_cast<size_t>(type)));
    for (const auto& element : elements) all += element;
    return add(id, 9, all);
  }
  std::string end() const { return bytes_ + std::string(1, '\0'); }

  static constexpr int kStruct = 12;

 private:
  Thrift& add(int id, int type, const std::string& value) {
    bytes_ += static_cast<char>((id - last_) << 4 | type);
    bytes_ += value;
    last_ = id;
    return *this;
  }
  std::string bytes_;
  int last_ = 0;
};

std::string little_endian(uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

// A Parquet file with the column `image`, which has this value in all rows: once in a dictionary,
// then one run of its index.
std::string repeated(const std::string& value, uint64_t rows) {
  constexpr int kByteArray = 6;
  constexpr int kPlain = 0;
  constexpr int kRle = 3;
  constexpr int kRleDictionary = 8;
  const auto page = [](int type, int id, const Thrift& header, const std::string& body) {
    return Thrift()
               .i32(1, static_cast<uint64_t>(type))
               .i32(2, body.size())
               .i32(3, body.size())
               .structure(id, header)
               .end() +
           body;
  };
  const std::string dictionary = page(2, 7, Thrift().i32(1, 1).i32(2, kPlain),
                                      little_endian(static_cast<uint32_t>(value.size())) + value);
  // Indices of one bit: a run of zeros.
  const std::string indices = std::string(1, '\1') + Thrift::varint(rows << 1) + '\0';
  const std::string data =
      page(0, 5, Thrift().i32(1, rows).i32(2, kRleDictionary).i32(3, kRle).i32(4, kRle), indices);
  const uint64_t length = dictionary.size() + data.size();
  const Thrift column = Thrift()
                            .i32(1, kByteArray)
                            .list(2, 5, {Thrift::number(kPlain), Thrift::number(kRleDictionary)})
                            .list(3, 8, {Thrift::text("image")})
                            .i32(4, 0)
                            .i64(5, rows)
                            .i64(6, length)
                            .i64(7, length)
                            .i64(9, 4 + dictionary.size())
                            .i64(11, 4);
  const Thrift group =
      Thrift()
          .list(1, Thrift::kStruct, {Thrift().i64(2, 4).structure(3, column).end()})
          .i64(2, length)
          .i64(3, rows);
  const std::string footer =
      Thrift()
          .i32(1, 1)
          .list(2, Thrift::kStruct,
                {Thrift().string(4, "schema").i32(5, 1).end(),
                 Thrift().i32(1, kByteArray).i32(3, 0).string(4, "image").end()})
          .i64(3, rows)
          .list(4, Thrift::kStruct, {group.end()})
          .end();
  return "PAR1" + dictionary + data + footer + little_endian(static_cast<uint32_t>(footer.size())) +
         "PAR1";
}

TEST_F(ColumnsTest, ADictionaryThatExpandsToGigabytesIsRefused) {
  const auto files = (*load_column_plugin("parquet"))->parquet({"image"});
  const auto read_column = [&](const std::string& contents,
                               uint32_t rows) -> Result<std::vector<Column>> {
    const auto object = testing::object_of(contents);
    MUSTER_TRY(const auto extents, files->cut(object));
    MUSTER_TRY(const auto notes, files->notes(object));
    const std::string block =
        notes.at(0) + contents.substr(extents.at(0).offset, extents.at(0).length);
    return files->read(std::as_bytes(std::span(block)), rows, "");
  };
  const auto good = read_column(repeated("ab", 10), 10);
  ASSERT_TRUE(good.ok()) << good.error().message();
  EXPECT_EQ(good->at(0).bytes.size(), 20U);
  const auto large = read_column(repeated(std::string(1 << 20, 'x'), 4096), 4096);
  ASSERT_FALSE(large.ok()) << "4 GiB";
  EXPECT_EQ(large.error().kind(), ErrorKind::kData);
  EXPECT_THAT(large.error().message(),
              ::testing::AllOf(HasSubstr("column 'image'"), HasSubstr("shorter row groups")));
}

TEST_F(ColumnsTest, LongRowGroupsAreRefusedWithAdvice) {
  auto source = options("{ input: dense }");
  source.path = testing::testdata_path("numbers.parquet");
  BlockSetup setup;
  auto dataset = Registry::builtin().open(source, setup);
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_EQ((*dataset)->size(), 10U);
  setup.longest_block = 100;
  dataset = Registry::builtin().open(source, setup);
  ASSERT_FALSE(dataset.ok());
  EXPECT_THAT(dataset.error().message(), HasSubstr("`muster data pack`"));
}

}  // namespace
}  // namespace muster::data
