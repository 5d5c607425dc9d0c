#include "muster/train/signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/one_signal.h"

namespace muster::train {
namespace {

TEST(StopSignals, ThoseThatComeTogetherAreOneWhateverThreadTakesThem) {
  for (int round = 0; round < 300; ++round) {
    const auto signals = StopSignals::listen(/*hangups=*/false).value();
    EXPECT_EQ(signals->received(), 0);
    std::atomic<bool> go = false;
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        while (!go) std::this_thread::yield();
        pthread_kill(pthread_self(), SIGINT);  // would end this process if it were a second one
      });
    }
    go = true;
    threads.clear();
    EXPECT_EQ(signals->received(), SIGINT);
  }
}

TEST(StopSignals, ASecondListenerIsAnError) {
  {
    const auto first = StopSignals::listen(/*hangups=*/false);
    ASSERT_TRUE(first.ok());
    const auto second = StopSignals::listen(/*hangups=*/false);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().kind(), ErrorKind::kJob);
  }
  EXPECT_TRUE(StopSignals::listen(/*hangups=*/false).ok());
}

void other_handler(int) {}

struct sigaction present(int number) {
  struct sigaction now{};
  sigaction(number, nullptr, &now);
  return now;
}

// A program in Python gets its KeyboardInterrupt again.
TEST(StopSignals, LeavesWhatWasThereBefore) {
  struct sigaction own{};
  own.sa_handler = other_handler;
  own.sa_flags = SA_NODEFER;
  struct sigaction first{};
  sigaction(SIGINT, &own, &first);
  signal(SIGHUP, SIG_DFL);  // nohup may have run this test
  {
    const auto signals = StopSignals::listen(/*hangups=*/true).value();
    EXPECT_NE(present(SIGINT).sa_handler, other_handler);
    EXPECT_NE(present(SIGHUP).sa_handler, SIG_DFL);
    signal(SIGTERM, other_handler);  // the program itself
  }
  EXPECT_EQ(present(SIGINT).sa_handler, other_handler);
  EXPECT_EQ(present(SIGINT).sa_flags & SA_NODEFER, SA_NODEFER);
  EXPECT_EQ(present(SIGHUP).sa_handler, SIG_DFL);
  EXPECT_EQ(present(SIGTERM).sa_handler, other_handler);
  sigaction(SIGINT, &first, nullptr);
  signal(SIGTERM, SIG_DFL);
}

TEST(StopSignalsDeathTest, ASecondOneMeansNow) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto signals = StopSignals::listen(/*hangups=*/true).value();
        raise(SIGHUP);
        std::this_thread::sleep_for(2 * kOneSignal);
        raise(SIGTERM);
        _exit(0);
      },
      testing::ExitedWithCode(128 + SIGTERM), "");
}

TEST(StopSignalsDeathTest, WhatIsIgnoredStaysIgnored) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        signal(SIGHUP, SIG_IGN);
        const auto signals = StopSignals::listen(/*hangups=*/true).value();
        raise(SIGHUP);
        _exit(signals->received());
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace muster::train
