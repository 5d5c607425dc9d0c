#include "tools/muster-launch/verify/hung_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "muster/base/thread.h"

namespace muster::cli {
namespace {

using namespace std::chrono_literals;

TEST(HungProcess, LanesAndSumsCompute) {
  EXPECT_TRUE(computes("muster-worker", true));
  EXPECT_TRUE(computes("lane-0", false));
  EXPECT_TRUE(computes("sum", false));
  EXPECT_FALSE(computes("roster", false));
  EXPECT_FALSE(computes("grpc_global_tim", false));
}

// A child with a lane that counts in one pipe, and a heartbeat that counts in another.
class Child {
 public:
  Child() {
    EXPECT_EQ(pipe(lane_), 0);
    EXPECT_EQ(pipe(heart_), 0);
    pid_ = fork();
    if (pid_ != 0) return;
    const auto beat = [](int file) {
      while (write(file, "x", 1) == 1) std::this_thread::sleep_for(1ms);
    };
    const Thread lane("lane-0", [&] { beat(lane_[1]); });
    beat_as("roster", [&] { beat(heart_[1]); });
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    for (const int file : {lane_[0], lane_[1], heart_[0], heart_[1]}) close(file);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }
  void await_lane() const { read_one(lane_[0]); }
  void await_heart() const { read_one(heart_[0]); }
  // Whether anything comes within a tenth of a second, once what had come before was read.
  bool lane_is_still() const {
    set_nonblocking(lane_[0]);
    char many[65536];
    while (read(lane_[0], many, sizeof(many)) > 0) {
    }
    std::this_thread::sleep_for(100ms);
    return read(lane_[0], many, sizeof(many)) <= 0;
  }

 private:
  template <typename F>
  static void beat_as(const char* name, F body) {
    const Thread thread(name, body);
    while (true) pause();
  }
  static void read_one(int file) {
    char one = 0;
    EXPECT_EQ(read(file, &one, 1), 1);
  }
  static void set_nonblocking(int file) { fcntl(file, F_SETFL, O_NONBLOCK); }
  int lane_[2];
  int heart_[2];
  pid_t pid_;
};

TEST(HungProcess, StandsStillWhileItsHeartbeatsContinue) {
  const Child child;
  child.await_lane();
  child.await_heart();
  auto hung = HungProcess::make(child.pid(), true);
  if (!hung.ok()) GTEST_SKIP() << hung.error().message();
  std::this_thread::sleep_for(20ms);
  EXPECT_TRUE(child.lane_is_still());
  for (int i = 0; i < 200; ++i) child.await_heart();
  EXPECT_FALSE(hung->ended());
  kill(child.pid(), SIGKILL);
  while (!hung->ended()) {
    waitpid(child.pid(), nullptr, WNOHANG);
    std::this_thread::sleep_for(1ms);
  }
}

TEST(HungProcess, ContinuesWhenItIsLetGo) {
  const Child child;
  child.await_lane();
  {
    const auto hung = HungProcess::make(child.pid(), true);
    if (!hung.ok()) GTEST_SKIP() << hung.error().message();
    std::this_thread::sleep_for(20ms);
    EXPECT_TRUE(child.lane_is_still());
  }
  EXPECT_FALSE(child.lane_is_still());
}

TEST(HungProcess, OneThatIsGoneIsAnError) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(HungProcess::make(child, true).ok());
}

}  // namespace
}  // namespace muster::cli
