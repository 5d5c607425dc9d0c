#include "tools/muster-launch/verify/awaited.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Back = Awaited::Back;

TEST(Awaited, IsInAgainOnlyAsAnotherIncarnation) {
  Awaited awaited;
  EXPECT_TRUE(awaited.nobody());
  awaited.add(4, {"1", 100, 7});
  EXPECT_THAT(awaited.seen({{"0", 99, 8}, {"1", 100, 7}}), IsEmpty()) << "not put out yet";
  EXPECT_THAT(awaited.seen({{"0", 99, 8}}), IsEmpty());
  EXPECT_THAT(awaited.seen({{"0", 99, 8}, {"1", 100, 9}}), ElementsAre(Back{4, "1", true}))
      << "the same process: it was only stopped";
  EXPECT_TRUE(awaited.nobody());
  EXPECT_THAT(awaited.seen({{"1", 100, 10}}), IsEmpty()) << "it is told once";
}

TEST(Awaited, TheLastOfAFaultIsKnown) {
  Awaited awaited;
  for (const char* const id : {"0", "1", "2"}) awaited.add(3, {id, 100, 7});
  awaited.add(5, {"joiner-1", 0, 0});
  EXPECT_THAT(awaited.seen({{"1", 101, 8}, {"joiner-1", 102, 9}}),
              ElementsAre(Back{3, "1", false}, Back{5, "joiner-1", true}));
  EXPECT_THAT(awaited.seen({{"0", 103, 8}, {"2", 104, 9}}),
              ElementsAre(Back{3, "0", false}, Back{3, "2", true}));
}

}  // namespace
}  // namespace muster::cli
