#include "muster/base/thread.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <string>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace muster
