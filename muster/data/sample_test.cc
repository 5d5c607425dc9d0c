// The sample that the repository ships can be opened as the examples open it.
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/data/dataset.h"

namespace muster::data {
namespace {

using ::testing::ElementsAre;

class SampleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* source = std::getenv("MUSTER_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
    if (source == nullptr) GTEST_SKIP() << "MUSTER_SOURCE_DIR is not set; run it through ctest";
    root_ = std::string(source) + "/examples/data/";
  }

  config::SourceOptions images(const std::string& set, const std::string& part) const {
    config::SourceOptions options;
    options.format = "idx";
    options.images = root_ + set + "/" + part + "-images-idx3-ubyte.gz";
    options.labels = root_ + set + "/" + part + "-labels-idx1-ubyte.gz";
    options.classes = 10;
    return options;
  }

  void expect_images(const std::string& set, uint64_t train_size, uint64_t test_size) const {
    auto train = Registry::builtin().open(images(set, "train"));
    auto test = Registry::builtin().open(images(set, "t10k"));
    ASSERT_TRUE(train.ok()) << train.error().message();
    ASSERT_TRUE(test.ok()) << test.error().message();
    EXPECT_EQ((*train)->size(), train_size);
    EXPECT_EQ((*test)->size(), test_size);
    EXPECT_THAT((*train)->schema().input_shape, ElementsAre(1, 28, 28));
    EXPECT_TRUE(check_compatible((*train)->schema(), (*test)->schema()).ok());
  }

  std::string root_;
};

TEST_F(SampleTest, Mnist) { expect_images("mnist", 2000, 500); }
TEST_F(SampleTest, FashionMnist) { expect_images("fashion-mnist", 1000, 250); }

TEST_F(SampleTest, TinyShakespeare) {
  config::SourceOptions options;
  options.format = "text";
  options.path = root_ + "tinyshakespeare/input.txt";
  options.context = 64;
  auto text = Registry::builtin().open(options);
  ASSERT_TRUE(text.ok()) << text.error().message();
  EXPECT_EQ((*text)->size(), 199994U - 64);
  EXPECT_EQ((*text)->schema().vocabulary.front(), "\n");
  EXPECT_EQ((*text)->schema().vocabulary.back(), "z");
}

}  // namespace
}  // namespace muster::data
