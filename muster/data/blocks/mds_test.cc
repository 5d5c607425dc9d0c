#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/formats_testing.h"

namespace muster::data {
namespace {

using testing::args_of;
using ::testing::ElementsAre;
using testing::failure;
using ::testing::HasSubstr;
using testing::read;
using testing::testdata;

config::SourceOptions options_of(std::string_view args) {
  config::SourceOptions options;
  options.format = "mds";
  options.classes = 4;
  options.args = args_of(args);
  return options;
}

TEST(MdsTest, ReadsShardsThatMosaicMlWrote) {
  auto all = read(testdata("mds/shard.00000.mds"), options_of("{ input: weights }"));
  ASSERT_TRUE(all.ok()) << all.error().message();
  ASSERT_EQ(all->inputs.size(), 7U);
  EXPECT_THAT(all->inputs[5], ElementsAre(5, 0.5F, -1, 2));
  EXPECT_THAT(all->targets, ElementsAre(0, 1, 2, 3, 0, 1, 2));
  auto last = read(testdata("mds/shard.00001.mds"), options_of("{ input: weights }"));
  ASSERT_TRUE(last.ok()) << last.error().message();
  EXPECT_THAT(last->targets, ElementsAre(3));
  auto images =
      read(testdata("mds/shard.00000.mds"), options_of("{ input: image, size: 8 }"), 2000);
  ASSERT_TRUE(images.ok()) << images.error().message();
  EXPECT_GT(images->extents.size(), 2U);
  EXPECT_THAT(images->schema.input_shape, ElementsAre(3, 8, 8));
  auto single = read(testdata("mds/shard.00000.mds"), options_of("{ input: image, size: 8 }"), 1);
  ASSERT_TRUE(single.ok());
  EXPECT_EQ(single->inputs, images->inputs);
}

TEST(MdsTest, ShardsOfOneDataSetSayTheSameAboutIt) {
  auto format = make_mds(options_of("{ input: image }"));
  ASSERT_TRUE(format.ok());
  const std::string one = testdata("mds/shard.00000.mds");
  const std::string two = testdata("mds/shard.00001.mds");
  auto about = (*format)->about(testing::object_of(one));
  ASSERT_TRUE(about.ok()) << about.error().message();
  EXPECT_EQ(*about, *(*format)->about(testing::object_of(two)));
  EXPECT_FALSE((*format)->set_about("{}").ok());
}

TEST(MdsTest, SaysWhatIsWrong) {
  const std::string good = testdata("mds/shard.00000.mds");
  EXPECT_THAT(failure(good, options_of("{ input: wheights }")),
              HasSubstr("no column 'wheights' (did you mean 'weights'?); there are: image"));
  EXPECT_THAT(failure(good, options_of("{ input: name }")), HasSubstr("is not a number"));
  EXPECT_THAT(failure("x", options_of("{ input: image }")), HasSubstr("too short"));
  for (size_t size = 8; size < good.size(); size += 100) {
    EXPECT_NE(failure(good.substr(0, size), options_of("{ input: weights }")), "") << size;
  }
  EXPECT_THAT(failure("\x28\xb5\x2f\xfd 1234567890", options_of("{ input: image }")),
              HasSubstr("zstd"));
}

}  // namespace
}  // namespace muster::data
