#include "muster/sync/largest.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"

namespace muster::sync {
namespace {

// By sorting.
std::vector<uint16_t> expected(const std::vector<float>& values, size_t keep) {
  std::vector<uint16_t> places(values.size());
  std::iota(places.begin(), places.end(), uint16_t{0});
  std::ranges::sort(places, [&](uint16_t a, uint16_t b) {
    const float x = std::abs(values[a]);
    const float y = std::abs(values[b]);
    return x != y ? x > y : a < b;
  });
  places.resize(keep);
  std::ranges::sort(places);
  return places;
}

void expect_largest(const std::vector<float>& values, size_t keep) {
  for (const Isa isa : usable_isas()) {
    std::vector<uint16_t> places(keep);
    find_largest(values, places, isa);
    EXPECT_EQ(places, expected(values, keep))
        << keep << " of " << values.size() << " with " << isa_name(isa);
  }
}

TEST(Largest, AreThoseThatSortingFinds) {
  RandomStream random(3, Purpose::kUser);
  for (const size_t size : {1, 2, 15, 16, 63, 64, 65, 127, 129, 1000, 4095, 4096}) {
    std::vector<float> values(size);
    for (float& v : values) v = random.normal();
    for (const size_t keep : {1, 2, 3, 16, 17, 64, 100, 1000, 4096}) {
      if (keep <= size) expect_largest(values, keep);
    }
  }
}

TEST(Largest, OfEqualMagnitudesTheFirstOnesAreTaken) {
  expect_largest(std::vector<float>(4096, 0.0f), 64);
  expect_largest(std::vector<float>(1000, -2.5f), 7);
  std::vector<float> values(4096);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 5) * (i % 2 == 0 ? 1.0f : -1.0f);
  }
  for (const size_t keep : {1, 64, 820, 4000}) expect_largest(values, keep);
}

TEST(Largest, FewLargeOnesInOneColumn) {
  // All large values are in one column of the bound, which is then far too low.
  std::vector<float> values(4096, 0.001f);
  for (size_t i = 5; i < values.size(); i += 64) values[i] = -static_cast<float>(i);
  expect_largest(values, 64);
  expect_largest(values, 32);
}

TEST(Largest, NoneAndAll) {
  const std::vector<float> values = {3, -1, 2};
  expect_largest(values, 0);
  expect_largest(values, 3);
  expect_largest({}, 0);
}

}  // namespace
}  // namespace muster::sync
