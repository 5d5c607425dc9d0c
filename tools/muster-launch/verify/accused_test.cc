#include "tools/muster-launch/verify/accused.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr const char* kLog =
    "12:00:01 warning the states of the workers differ after step 20 (in the part of it that "
    "begins "
    "with weights of 'a'): worker 2 on h is wrong, the others agree. Its memory may be faulty\n"
    "12:00:02 info roster 7: rank 1 of 3\n"
    "12:00:09 warning two workers computed different gradients for lane 4 of step 31: worker w-1 "
    "on "
    "h is wrong, the others agree. Its memory\n"
    "12:00:11 error the counters of worker 3 on h have changed by themselves: its memory\n";

TEST(Accused, EachVerdictCountsOnce) {
  std::set<std::string> sentences;
  find_accusations(kLog, sentences);
  find_accusations(kLog, sentences);
  EXPECT_THAT(accused(sentences), ElementsAre(Pair("2", 1), Pair("3", 1), Pair("w-1", 1)));
}

TEST(Accused, AreHeldAgainstThoseThatWereMadeFaulty) {
  InjectedFault flip;
  flip.kind = launch::FaultKind::kFlip;
  flip.whom = "2";
  InjectedFault kill;
  kill.whom = "3";
  EXPECT_THAT(wrong_accusations({{"2", 1}}, {flip, kill}), IsEmpty());
  EXPECT_EQ(wrong_accusations({{"1", 1}}, {flip}).size(), 2U);
  EXPECT_EQ(wrong_accusations({}, {flip}).size(), 1U);
}

}  // namespace
}  // namespace muster::cli
