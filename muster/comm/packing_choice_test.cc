#include "muster/comm/packing_choice.h"

#include <gtest/gtest.h>

namespace muster::comm {
namespace {

using exact::Packing;

constexpr size_t kValues = 1 << 20;

// How many of `count` operations were packed small, if they take so long.
int count_small(PackingChoice& choice, int count, double fast, double small) {
  int result = 0;
  for (int i = 0; i < count; ++i) {
    const bool is_small = choice.next(kValues) == Packing::kSmall;
    choice.note(kValues, is_small ? small : fast);
    result += is_small ? 1 : 0;
  }
  return result;
}

TEST(PackingChoice, TakesWhatIsFaster) {
  PackingChoice slow_link;
  EXPECT_GE(count_small(slow_link, 100, 1.0, 0.7), 95);
  PackingChoice fast_link;
  EXPECT_LE(count_small(fast_link, 100, 1.0, 1.5), 4);
  PackingChoice no_difference;
  EXPECT_LE(count_small(no_difference, 100, 1.0, 0.99), 4);
}

TEST(PackingChoice, FollowsALinkThatChanges) {
  PackingChoice choice;
  count_small(choice, 100, 1.0, 2.0);
  count_small(choice, 100, 10.0, 7.0);
  EXPECT_GE(count_small(choice, 100, 10.0, 7.0), 95);
}

TEST(PackingChoice, SmallOperationsDoNotCount) {
  PackingChoice choice;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(choice.next(100), Packing::kFast);
    choice.note(100, 1e3);
  }
  EXPECT_EQ(choice.next(kValues), Packing::kFast);
  choice.note(kValues, 1.0);
  EXPECT_EQ(choice.next(kValues), Packing::kSmall) << "the second trial";
}

}  // namespace
}  // namespace muster::comm
