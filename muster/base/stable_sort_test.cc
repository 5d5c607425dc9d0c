#include "muster/base/stable_sort.h"

#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::ElementsAre;

TEST(StableSort, EqualKeysKeepTheirOrder) {
  std::vector<std::pair<int, std::string>> values;
  for (int i = 0; i < 200; ++i) values.emplace_back((i * 7) % 3, std::to_string(i));
  sort_stable(values, {}, &std::pair<int, std::string>::first);
  for (size_t i = 1; i < values.size(); ++i) {
    EXPECT_LE(values[i - 1].first, values[i].first);
    if (values[i - 1].first == values[i].first) {
      EXPECT_LT(std::stoi(values[i - 1].second), std::stoi(values[i].second));
    }
  }
}

TEST(StableSort, TakesAnyOrder) {
  std::vector<std::string> values = {"cc", "a", "bb", "b"};
  sort_stable(values, [](const auto& a, const auto& b) { return a.size() > b.size(); });
  EXPECT_THAT(values, ElementsAre("cc", "bb", "a", "b"));
}

TEST(StableSort, MovesWhatCannotBeCopied) {
  std::vector<std::unique_ptr<int>> values;
  for (const int i : {3, 1, 2}) values.push_back(std::make_unique<int>(i));
  sort_stable(values, {}, [](const auto& value) { return *value; });
  EXPECT_EQ(*values[0], 1);
  EXPECT_EQ(*values[2], 3);
}

TEST(StableSort, NothingAndOne) {
  std::vector<int> none;
  sort_stable(none);
  EXPECT_TRUE(none.empty());
  std::vector<int> one = {5};
  sort_stable(one);
  EXPECT_THAT(one, ElementsAre(5));
}

TEST(StablePartition, BothPartsKeepTheirOrder) {
  std::vector<int> values = {5, 2, 3, 8, 1, 4};
  partition_stable(values, [](int value) { return value % 2 == 0; });
  EXPECT_THAT(values, ElementsAre(2, 8, 4, 5, 3, 1));
}

}  // namespace
}  // namespace muster
