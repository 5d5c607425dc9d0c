#include "muster/sync/subset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace muster::sync {
namespace {

TEST(Subset, SharesAreRoundedAndNeverNothing) {
  EXPECT_EQ(share_of(4096, 64), 64u);
  EXPECT_EQ(share_of(10, 64), 1u);
  EXPECT_EQ(share_of(96, 64), 2u);  // 1.5
  EXPECT_EQ(share_of(8, 4096), 8u);
}

TEST(Subset, PlacesAreDifferentAscendingAndInside) {
  for (const size_t size : {1u, 7u, 100u, 4096u}) {
    for (const size_t count : {size_t{1}, size / 2, size}) {
      std::vector<uint16_t> places(count);
      draw_subset(RandomStream(3, Purpose::kSubset, size, count), size, places);
      for (const uint16_t place : places) EXPECT_LT(place, size);
      EXPECT_TRUE(std::ranges::is_sorted(places));
      EXPECT_EQ(std::ranges::adjacent_find(places), places.end());
    }
  }
}

TEST(Subset, EachSetIsAsProbableAsAnyOther) {
  constexpr int kDraws = 60000;
  std::array<std::array<int, 4>, 4> seen{};
  for (int draw = 0; draw < kDraws; ++draw) {
    std::array<uint16_t, 2> places{};
    draw_subset(RandomStream(5, Purpose::kSubset, static_cast<uint64_t>(draw)), 4, places);
    ++seen[places[0]][places[1]];
  }
  // Six sets; five deviations of a binomial.
  const double expected = kDraws / 6.0;
  for (size_t a = 0; a < 4; ++a) {
    for (size_t b = a + 1; b < 4; ++b) {
      EXPECT_NEAR(seen[a][b], expected, 5 * std::sqrt(expected));
    }
  }
}

}  // namespace
}  // namespace muster::sync
