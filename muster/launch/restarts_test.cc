#include "muster/launch/restarts.h"

#include <signal.h>

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::launch {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const Ending kKilled{0, SIGKILL};
Ending exit_with(int code) { return {code, 0}; }

// A slot in virtual time.
class Slot {
 public:
  explicit Slot(RestartOptions options = {}) : options_(options) { history_.started = now_; }
  // It runs for `alive`, then ends.
  Verdict runs(Duration alive, Ending ending = kKilled) {
    now_ += alive;
    return after_end(now_, history_, ending, options_);
  }
  void restart(const Verdict& verdict) {
    now_ += verdict.after;
    note_restart(now_, history_, verdict, options_);
  }

 private:
  RestartOptions options_;
  SlotHistory history_;
  Moment now_{1h};
};

TEST(Restarts, TheFirstComesAtOnceThenItWaitsTwiceAsLongEachTime) {
  Slot slot;
  std::vector<Duration> pauses;
  for (int i = 0; i < 12; ++i) {
    const auto verdict = slot.runs(1s);
    ASSERT_EQ(verdict.then, Then::kAgain) << verdict.reason;
    pauses.push_back(verdict.after);
    slot.restart(verdict);
  }
  EXPECT_THAT(pauses, testing::ElementsAre(0ms, 100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 6400ms,
                                           12800ms, 25600ms, 30s, 30s));
}

TEST(Restarts, AWorkerThatIsRefusedIsNotStartedAgainAndTheOthersContinue) {
  Slot slot;
  const auto verdict = slot.runs(1s, exit_with(10));
  EXPECT_EQ(verdict.then, Then::kGiveUp);
  EXPECT_EQ(verdict.reason, "left with exit code 10 (refused)");
}

TEST(Restarts, WhatAMachineCannotDoIsTriedAFewTimesOnly) {
  Slot slot;
  slot.restart(slot.runs(3s, exit_with(8)));  // it had worked
  for (int i = 0; i < 3; ++i) {
    const auto verdict = slot.runs(1s, exit_with(8));
    ASSERT_EQ(verdict.then, Then::kAgain) << verdict.reason;
    slot.restart(verdict);
  }
  slot.restart(slot.runs(1s));  // killed: that is no reason to give up
  const auto verdict = slot.runs(1s, exit_with(8));
  EXPECT_EQ(verdict.then, Then::kGiveUp);
  EXPECT_EQ(verdict.reason, "left with exit code 8 (machine); 4 restarts for that did not help");
}

// A server that it cannot reach is noticed after half a minute.
TEST(Restarts, WhatAMachineCannotDoMayShowLate) {
  Slot slot;
  for (int i = 0; i < 4; ++i) slot.restart(slot.runs(32s, exit_with(8)));
  EXPECT_EQ(slot.runs(32s, exit_with(8)).then, Then::kGiveUp);
  EXPECT_EQ(slot.runs(11min, exit_with(8)).then, Then::kAgain) << "it worked for long";
}

TEST(Restarts, WhoHasTakenPartBeginsAnew) {
  Slot slot;
  for (int i = 0; i < 8; ++i) slot.restart(slot.runs(1s));
  EXPECT_GT(slot.runs(1900ms).after, 10s);
  const auto verdict = slot.runs(1s);
  EXPECT_EQ(verdict.after, 0s);
  slot.restart(verdict);
  EXPECT_EQ(slot.runs(1s).after, 100ms);
}

TEST(Restarts, ThePauseIsNoTimeOfWork) {
  Slot slot;
  for (int i = 0; i < 11; ++i) slot.restart(slot.runs(1s));
  slot.restart(slot.runs(1500ms));  // and then 30 s of pause
  EXPECT_EQ(slot.runs(1s).after, 30s);
}

TEST(Restarts, AfterSoManyWithinTenMinutesTheSlotIsGivenUp) {
  RestartOptions options;
  options.most = 3;
  Slot slot(options);
  for (int i = 0; i < 3; ++i) slot.restart(slot.runs(100s));
  const auto verdict = slot.runs(100s);
  EXPECT_EQ(verdict.then, Then::kGiveUp);
  EXPECT_EQ(verdict.reason, "was killed by SIGKILL; it was started again 3 times within 10m00s");
  EXPECT_EQ(slot.runs(300s).then, Then::kAgain) << "the oldest restart is 10 minutes ago";
}

TEST(Restarts, NoneIsAChoice) {
  RestartOptions options;
  options.most = 0;
  const auto verdict = Slot(options).runs(1s);
  EXPECT_EQ(verdict.then, Then::kGiveUp);
  EXPECT_THAT(verdict.reason, HasSubstr("workers.restarts is 0"));
}

TEST(Restarts, WhatWouldComeAgainEverywhereEndsTheJob) {
  for (const auto kind : {ErrorKind::kUsage, ErrorKind::kJob, ErrorKind::kData,
                          ErrorKind::kCheckpoint, ErrorKind::kNumerics}) {
    EXPECT_EQ(Slot().runs(1s, exit_with(static_cast<int>(kind))).then, Then::kEndJob)
        << error_kind_name(kind);
  }
  for (const auto kind : {ErrorKind::kInternal, ErrorKind::kIo, ErrorKind::kMachine}) {
    EXPECT_EQ(Slot().runs(1s, exit_with(static_cast<int>(kind))).then, Then::kAgain)
        << error_kind_name(kind);
  }
  EXPECT_EQ(Slot().runs(1s, exit_with(255)).then, Then::kAgain) << "ssh could not connect";
  for (const int number : {SIGKILL, SIGSEGV, SIGTERM, SIGINT}) {
    EXPECT_EQ(Slot().runs(1s, {0, number}).then, Then::kAgain) << signal_name(number);
  }
}

TEST(Restarts, WhereWorkCanBeContinuedAnyErrorEndsTheJob) {
  Slot usual;
  EXPECT_EQ(usual.runs(1s, exit_with(static_cast<int>(ErrorKind::kIo))).then, Then::kAgain);
  RestartOptions options;
  options.errors_end_job = true;
  Slot slot(options);
  EXPECT_EQ(slot.runs(1s, exit_with(static_cast<int>(ErrorKind::kIo))).then, Then::kEndJob);
  EXPECT_EQ(slot.runs(1s, kKilled).then, Then::kAgain);
  EXPECT_EQ(slot.runs(1s, exit_with(0)).then, Then::kLeft);
}

TEST(Restarts, OfServersWhatAMachineCannotDoEndsTheJob) {
  RestartOptions options;
  options.machine_errors_end_job = true;
  Slot slot(options);
  EXPECT_EQ(slot.runs(1s, exit_with(static_cast<int>(ErrorKind::kMachine))).then, Then::kEndJob);
  EXPECT_EQ(slot.runs(1s, exit_with(static_cast<int>(ErrorKind::kIo))).then, Then::kAgain);
  EXPECT_EQ(slot.runs(1s, exit_with(127)).then, Then::kGiveUp) << "others may start";
  EXPECT_EQ(slot.runs(1s, kKilled).then, Then::kAgain);
}

TEST(Restarts, WhoLeftIsNotCalledBack) {
  EXPECT_EQ(Slot().runs(1s, exit_with(0)).then, Then::kLeft);
  EXPECT_EQ(Slot().runs(1s, exit_with(143)).then, Then::kLeft);
  EXPECT_EQ(Slot().runs(1s, exit_with(130)).then, Then::kStopped);
}

TEST(Restarts, AProgramThatCannotStartIsNotTriedTwentyTimes) {
  EXPECT_EQ(Slot().runs(0s, exit_with(127)).then, Then::kGiveUp);
}

}  // namespace
}  // namespace muster::launch
