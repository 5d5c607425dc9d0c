#include "muster/launch/ending.h"

#include <signal.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::launch {
namespace {

using testing::HasSubstr;

TEST(Ending, InWords) {
  EXPECT_EQ(ending_text({0, 0}), "left");
  EXPECT_EQ(ending_text({4, 0}), "left with exit code 4 (data)");
  EXPECT_EQ(ending_text({77, 0}), "left with exit code 77");
  EXPECT_EQ(ending_text({0, SIGKILL}), "was killed by SIGKILL");
  EXPECT_EQ(kind_of({127, 0}), ErrorKind::kMachine);
  EXPECT_EQ(kind_of({9, 0}), std::nullopt);
  EXPECT_EQ(kind_of({3, SIGKILL}), std::nullopt);
}

Ending ended_by(int signal) { return {0, signal}; }

TEST(ExitMessage, AnExitCodeSpeaksForItself) {
  Ending end;
  for (const int code : {0, 1, 3, 8, 130, 143}) {
    end.exit_code = code;
    EXPECT_FALSE(exit_message(end, "the worker", "advice").has_value()) << code;
  }
}

TEST(ExitMessage, SaysWhatASignalMayMean) {
  EXPECT_THAT(exit_message(ended_by(SIGKILL), "the worker", "")->sentence,
              HasSubstr("memory ran out"));
  EXPECT_THAT(exit_message(ended_by(SIGSEGV), "the worker", "")->sentence, HasSubstr("bug"));
  EXPECT_THAT(exit_message(ended_by(SIGILL), "the worker", "")->sentence,
              HasSubstr("muster doctor"));
  EXPECT_EQ(exit_message(ended_by(SIGKILL), "the worker", "")->exit_code, 137)
      << "as shells and docs/exit-codes.md say";
  EXPECT_THAT(exit_message(ended_by(SIGKILL), "the worker", "resume it")->sentence,
              testing::EndsWith("; resume it"));
}

TEST(ExitMessage, ASignalOfOnesOwnIsNoBug) {
  EXPECT_EQ(exit_message(ended_by(SIGINT), "the worker", "")->exit_code, 130);
  EXPECT_EQ(exit_message(ended_by(SIGTERM), "the worker", "")->exit_code, 143);
  EXPECT_THAT(exit_message(ended_by(SIGTERM), "the worker", "")->sentence,
              HasSubstr("SIGTERM before"));
}

TEST(ExitMessage, LibrariesThatAreMissing) {
  Ending end;
  end.exit_code = 127;
  EXPECT_EQ(exit_message(end, "the worker", "")->exit_code, static_cast<int>(ErrorKind::kMachine));
}

}  // namespace
}  // namespace muster::launch
