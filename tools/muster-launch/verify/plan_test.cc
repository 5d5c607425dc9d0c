#include "tools/muster-launch/verify/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

bool nothing(const std::string&) { return false; }
bool everything(const std::string&) { return true; }

TEST(Plan, HangsGetAShortTimeoutUnlessTheUserGaveOne) {
  for (const char* const faults : {"hang", "kill,slow-disk:2"}) {
    EXPECT_THAT(options_for(*launch::parse_faults(faults), nothing).set,
                ElementsAre("workers.hang_timeout=3s"));
    EXPECT_EQ(options_for(*launch::parse_faults(faults), nothing).sentences.size(), 1U);
    EXPECT_THAT(options_for(*launch::parse_faults(faults), everything).set, ElementsAre());
  }
  EXPECT_THAT(options_for(*launch::parse_faults("kill,cut,pause"), nothing).set, ElementsAre());
}

TEST(Plan, AuditsAreFrequentForFaultsThatTheyFind) {
  const auto every = [](const std::string& key) { return key == "audit.every"; };
  for (const char* const faults : {"flip", "kill,lie:2"}) {
    EXPECT_THAT(options_for(*launch::parse_faults(faults), every).set,
                ElementsAre("audit.lanes=40", "checkpoint.every=10 steps"));
  }
}

TEST(Plan, CheckpointsAreFrequentForServersThatDieWhileOneIsRead) {
  EXPECT_THAT(options_for(*launch::parse_faults("kill-server@save"), nothing).set,
              ElementsAre("checkpoint.every=10 steps"));
  EXPECT_THAT(options_for(*launch::parse_faults("kill-server@save"), everything).set,
              ElementsAre());
  EXPECT_THAT(options_for(*launch::parse_faults("kill-server@ack"), nothing).set, ElementsAre());
}

TEST(Plan, OurOptionsComeBehindTheUsers) {
  VerifyArguments arguments;
  arguments.set = {"track.every=5 steps"};
  const auto set = settings(arguments, {{"workers.hang_timeout=3s"}, {}});
  EXPECT_EQ(set.front(), "track.every=5 steps");
  EXPECT_THAT(set, Contains("workers.hang_timeout=3s"));
  EXPECT_EQ(set.back(), "workers.restarts=100000");
}

}  // namespace
}  // namespace muster::cli
