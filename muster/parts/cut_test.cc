#include "muster/parts/cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::parts {
namespace {

using ::testing::ElementsAre;

TEST(Cut, CoversAllSamplesOnce) {
  for (const uint64_t samples : {1, 2, 255, 1024, 1025, 4096, 100'001}) {
    for (const uint64_t batch : {1, 7, 256, 5000}) {
      const auto borders = cut(samples, batch);
      ASSERT_GE(borders.size(), 2U);
      EXPECT_EQ(borders.front(), 0U);
      EXPECT_EQ(borders.back(), samples);
      for (size_t i = 1; i < borders.size(); ++i) EXPECT_LT(borders[i - 1], borders[i]);
    }
  }
}

TEST(Cut, PartsAreWholeBatchesButTheLast) {
  EXPECT_THAT(cut(3000, 256), ElementsAre(0, 1024, 2048, 3000));
  EXPECT_THAT(cut(3000, 1000), ElementsAre(0, 2000, 3000));
  EXPECT_THAT(cut(2048, 256), ElementsAre(0, 1024, 2048));
}

TEST(Cut, LargeDataHasNoMorePartsThanADirectoryTakes) {
  EXPECT_EQ(part_size(1'000'000, 256), 1024U);
  const auto borders = cut(1'000'000'000, 256);
  EXPECT_LE(borders.size(), 16385U);
  EXPECT_GE(borders.size(), 16000U);
}

TEST(Cut, PartsBeginWhereBlocksDo) {
  const std::vector<uint64_t> small = {0, 400, 800, 1200, 1600, 2000, 2400, 2800};
  EXPECT_THAT(cut(3000, 256, small), ElementsAre(0, 1200, 2400, 3000));
  const std::vector<uint64_t> large = {0, 5000, 10'000};
  EXPECT_THAT(cut(10'001, 256, large), ElementsAre(0, 5000, 10'000, 10'001));
  const std::vector<uint64_t> one = {0};
  EXPECT_THAT(cut(50'000, 256, one), ElementsAre(0, 50'000));
}

}  // namespace
}  // namespace muster::parts
