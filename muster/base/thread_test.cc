#include "muster/base/thread.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <latch>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/queue.h"

namespace muster {
namespace {

std::string current_name() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

TEST(Thread, HasItsNameAndIsJoined) {
  std::string name;
  {
    const Thread thread("lane-3", [&] { name = current_name(); });
    EXPECT_TRUE(thread.running());
  }
  EXPECT_EQ(name, "lane-3");  // written by the thread, read after it was joined
}

TEST(Thread, LongNamesAreCut) {
  std::string name;
  Thread("a-name-of-more-than-fifteen", [&] { name = current_name(); }).join();
  EXPECT_EQ(name, "a-name-of-more-");
}

TEST(Thread, AssigningJoinsTheOldOne) {
  std::atomic<int> done = 0;
  Thread thread("first", [&] { ++done; });
  thread = Thread("second", [&] { ++done; });
  EXPECT_GE(done, 1);
  thread.join();
  thread.join();  // fine
  EXPECT_EQ(done, 2);
  EXPECT_FALSE(thread.running());
}

TEST(Thread, UsableCoresFollowTheAffinity) {
  EXPECT_GE(usable_cores(), 1);
  int cores = 0;
  Thread("pinned",
         [&] {  // the affinity is the thread's own, so nobody else notices
           cpu_set_t all, one;
           ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
           CPU_ZERO(&one);
           for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
             if (CPU_ISSET(cpu, &all)) {
               CPU_SET(cpu, &one);
               break;
             }
           }
           ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
           cores = usable_cores();
         })
      .join();
  EXPECT_EQ(cores, 1);
}

TEST(Queue, KeepsTheOrder) {
  Queue<int> queue(3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.push(i));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue.pop(), i);
}

TEST(Queue, WhatIsInAClosedQueueCanStillBeTaken) {
  Queue<std::unique_ptr<int>> queue(2);
  EXPECT_TRUE(queue.push(std::make_unique<int>(1)));
  queue.close();
  EXPECT_FALSE(queue.push(std::make_unique<int>(2)));
  EXPECT_EQ(**queue.pop(), 1);
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(Queue, ClosingWakesEverybody) {
  Queue<int> empty(1), full(1);
  ASSERT_TRUE(full.push(0));
  std::latch started(4);
  std::atomic<int> gave_up = 0;
  std::vector<Thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back("pop", [&] {
      started.count_down();
      if (!empty.pop()) ++gave_up;
    });
    threads.emplace_back("push", [&] {
      started.count_down();
      if (!full.push(1)) ++gave_up;
    });
  }
  started.wait();
  // Whether they already wait or come later: each must end.
  empty.close();
  full.close();
  threads.clear();
  EXPECT_EQ(gave_up, 4);
}

TEST(Queue, IsBounded) {
  Queue<int> queue(2);
  std::atomic<int> pushed = 0;
  Thread producer("producer", [&] {
    for (int i = 0; i < 100; ++i) {
      queue.push(i);
      ++pushed;
    }
  });
  for (int taken = 0; taken < 100; ++taken) {
    EXPECT_EQ(queue.pop(), taken);
    // All taken, two inside, and one that waits for its counter.
    EXPECT_LE(pushed, taken + 1 + 2 + 1);
  }
}

TEST(Queue, NothingIsLostBetweenManyThreads) {
  Queue<int> queue(4);
  std::mutex mutex;
  std::multiset<int> received;
  {
    std::vector<Thread> consumers;
    for (int c = 0; c < 3; ++c) {
      consumers.emplace_back("consumer", [&] {
        while (const auto item = queue.pop()) {
          const std::lock_guard lock(mutex);
          received.insert(*item);
        }
      });
    }
    {
      std::vector<Thread> producers;
      for (int p = 0; p < 3; ++p) {
        producers.emplace_back("producer", [&, p] {
          for (int i = 0; i < 1000; ++i) EXPECT_TRUE(queue.push(p * 1000 + i));
        });
      }
    }
    queue.close();
  }
  std::vector<int> wanted(3000);
  std::iota(wanted.begin(), wanted.end(), 0);
  EXPECT_EQ(std::vector<int>(received.begin(), received.end()), wanted);
}

}  // namespace
}  // namespace muster
