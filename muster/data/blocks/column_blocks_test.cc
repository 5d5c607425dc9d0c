// Files that pyarrow wrote. Without the plugin that reads them, these tests are skipped.
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
