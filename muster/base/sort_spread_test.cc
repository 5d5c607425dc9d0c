#include "muster/base/sort_spread.h"

#include <functional>
#include <random>

#include <gtest/gtest.h>

namespace muster {
namespace {

using Value = std::pair<uint64_t, uint32_t>;  // key, place

void expect_sorted(std::vector<Value> values) {
  auto expected = values;
  std::ranges::sort(expected);
  sort_spread(values, [](const Value& value) { return value.first; });
  EXPECT_EQ(values, expected);
}

std::vector<Value> draw(size_t size, const std::function<uint64_t(uint64_t)>& key) {
  std::mt19937_64 random(size);
  std::vector<Value> values;
  for (uint32_t i = 0; i < size; ++i) values.emplace_back(key(random()), i);
  return values;
}

TEST(SortSpread, IsAStableSort) {
  for (const size_t size : {0, 1, 2, 63, 64, 65, 1000, 30000}) {
    expect_sorted(draw(size, [](uint64_t drawn) { return drawn; }));
    // Keys that are not spread, that are few, or that are all the same.
    expect_sorted(draw(size, [](uint64_t drawn) { return drawn % 1000; }));
    expect_sorted(draw(size, [](uint64_t drawn) { return drawn % 3 << 62; }));
    expect_sorted(draw(size, [](uint64_t) { return ~uint64_t{0}; }));
    // One that is far more frequent than others.
    expect_sorted(draw(size, [](uint64_t drawn) { return drawn % 2 == 0 ? 1 : drawn; }));
  }
}

TEST(SortSpread, SortsNumbersAsTheyAre) {
  std::mt19937_64 random(1);
  std::vector<uint64_t> values(5000);
  for (auto& value : values) value = random();
  auto expected = values;
  std::ranges::sort(expected);
  sort_spread(values);
  EXPECT_EQ(values, expected);
}

}  // namespace
}  // namespace muster
