#include "muster/train/evaluate.h"

#include <vector>

#include <gtest/gtest.h>

namespace muster::train {
namespace {

TEST(PartByShare, CoversAllOnce) {
  const std::vector<std::vector<size_t>> cases = {{1}, {4, 4, 4, 1}, {0, 3, 0, 1}, {64}, {1, 1, 1}};
  for (const auto& shares : cases) {
    for (const size_t count : {0, 1, 2, 13, 100}) {
      size_t next = 0;
      for (size_t rank = 0; rank < shares.size(); ++rank) {
        const auto part = part_by_share(count, rank, shares);
        EXPECT_EQ(part.begin, next);
        next += part.size;
        if (shares[rank] == 0) {
          EXPECT_EQ(part.size, 0U);
        }
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(PartByShare, FollowsTheShares) {
  const std::vector<size_t> shares = {4, 4, 4, 1};
  EXPECT_EQ(part_by_share(130, 0, shares).size, 40U);
  EXPECT_EQ(part_by_share(130, 3, shares).size, 10U);
}

}  // namespace
}  // namespace muster::train
