#include "muster/launch/fault_plan.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::launch {
namespace {

using ::testing::HasSubstr;

TEST(FaultPlan, IsReadFromWords) {
  const auto faults = parse_faults("kill:2,stop,kill@checkpoint:1,join:0");
  ASSERT_TRUE(faults.ok()) << faults.error().message();
  std::vector<std::string> names;
  for (const auto& fault : *faults) names.push_back(fault.name());
  EXPECT_EQ(names, (std::vector<std::string>{"kill", "kill", "suspend", "kill@checkpoint"}));
}

TEST(FaultPlan, EveryKindHasAWord) {
  const std::string words = "kill,pair,most,suspend,hang,leave,join,cut,slow-disk,pause,restart";
  const auto faults = parse_faults(words);
  ASSERT_TRUE(faults.ok()) << faults.error().message();
  std::string names;
  for (const auto& fault : *faults) names += (names.empty() ? "" : ",") + fault.name();
  EXPECT_EQ(names, words);
  EXPECT_TRUE(has_kind(*faults, FaultKind::kCut));
  EXPECT_FALSE(has_kind(*faults, FaultKind::kAimed));
}

TEST(FaultPlan, WorkersAndServersHavePointsOfTheirOwn) {
  const auto faults = parse_faults("kill-server@ack:2,kill-server@save,kill@round");
  ASSERT_TRUE(faults.ok()) << faults.error().message();
  ASSERT_EQ(faults->size(), 4U);
  EXPECT_EQ(faults->front().kind, FaultKind::kAimedServer);
  EXPECT_EQ(faults->front().name(), "kill-server@ack");
  EXPECT_EQ(faults->back().kind, FaultKind::kAimed);
  EXPECT_TRUE(has_point(*faults, FaultPoint::kSave));
  EXPECT_FALSE(has_point(*faults, FaultPoint::kCopy));
  for (const char* const words : {"kill@ack", "kill-server@round", "kill-server@", "suspend@ack"}) {
    const auto none = parse_faults(words);
    ASSERT_FALSE(none.ok()) << words;
    EXPECT_THAT(none.error().message(), HasSubstr("kill@round, kill-server@ack, "));
  }
}

TEST(FaultPlan, SaysWhatThereIs) {
  for (const char* const words : {"kil:2", "kill@lunch", "", "kill,,stop"}) {
    const auto faults = parse_faults(words);
    ASSERT_FALSE(faults.ok()) << words;
    EXPECT_THAT(faults.error().message(), HasSubstr("kill@before-commit, kill@after-commit"));
  }
  for (const char* const words : {"kill:", "kill:x", "kill:-1", "kill:3x"}) {
    const auto faults = parse_faults(words);
    ASSERT_FALSE(faults.ok()) << words;
    EXPECT_THAT(faults.error().message(), HasSubstr("how many"));
  }
}

TEST(FaultPlan, IsTheSameForTheSameSeed) {
  const auto plan = [](uint64_t seed) {
    auto faults = *parse_faults("kill:30,join:10");
    schedule_faults(faults, seed, 1000);
    std::vector<std::pair<uint64_t, std::string>> told;
    for (const auto& fault : faults) told.emplace_back(fault.step, fault.name());
    return told;
  };
  EXPECT_EQ(plan(3), plan(3));
  EXPECT_NE(plan(3), plan(4));
  const auto told = plan(3);
  EXPECT_TRUE(std::ranges::is_sorted(told, {}, [](const auto& t) { return t.first; }));
  EXPECT_GE(told.front().first, 50U);
  EXPECT_LT(told.back().first, 850U);
}

TEST(FaultPlan, TheCoordinatorIsHitInTheFirstHalf) {
  auto faults = *parse_faults("pause:50,restart:50");
  schedule_faults(faults, 3, 1000);
  EXPECT_GE(faults.front().step, 50U);
  EXPECT_LT(faults.back().step, 500U);
}

}  // namespace
}  // namespace muster::launch
