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
    const StopSignals signals(/*hangups=*/false);
    EXPECT_EQ(signals.received(), 0);
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
    EXPECT_EQ(signals.received(), SIGINT);
  }
}

TEST(StopSignalsDeathTest, ASecondOneMeansNow) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const StopSignals signals(/*hangups=*/true);
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
        const StopSignals signals(/*hangups=*/true);
        raise(SIGHUP);
        _exit(signals.received());
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace muster::train
