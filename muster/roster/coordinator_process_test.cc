// Workers as processes of their own, and what happens to them on a bad day: SIGKILL, SIGSTOP,
// SIGTERM.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/roster/coordinator.h"

namespace muster::roster {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr auto kPatience = 30s;

// Spawned, never forked: gRPC has threads.
class Process {
 public:
  Process(const std::string& address, const std::string& id) {
    std::string words[] = {MUSTER_ROSTER_TEST_WORKER, address, "job", id};
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                         nullptr};
    EXPECT_EQ(posix_spawn(&pid_, words[0].c_str(), nullptr, nullptr, arguments, environ), 0);
  }
  ~Process() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGCONT);
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void signal(int number) const { ::kill(pid_, number); }
  // Its exit code, or minus the signal.
  int wait() {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
};

class CoordinatorProcessTest : public testing::Test {
 protected:
  CoordinatorProcessTest() {
    CoordinatorOptions options;
    options.roster.job = "job";
    options.roster.lanes = 4;
    options.roster.expected = 3;
    options.roster.gather = kPatience;
    options.roster.lease = 2s;
    options.roster.heartbeat = 200ms;
    options.on_gone = [this](const Gone& gone) {
      const std::lock_guard lock(mutex_);
      gone_.push_back(gone);
      when_ = clock_.now();
    };
    coordinator_ = Coordinator::start(std::move(options), clock_).value();
    for (const char* id : {"a", "b", "c"}) {
      processes_[id] = std::make_unique<Process>(coordinator_->address(), id);
    }
  }
  size_t training() const {
    const StatusReport report = coordinator_->status();
    size_t in = 0;
    for (const WorkerStatus& worker : report.workers) {
      in +=
          report.roster.has(worker.member.key) && worker.beat.group == report.roster.number ? 1 : 0;
    }
    return in == report.roster.members.size() ? in : 0;
  }
  template <typename F>
  static bool eventually(F condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }
  std::optional<Gone> last_gone() {
    const std::lock_guard lock(mutex_);
    return gone_.empty() ? std::nullopt : std::optional(gone_.back());
  }
  Moment gone_at() {
    const std::lock_guard lock(mutex_);
    return when_;
  }

  const SystemClock clock_;
  std::mutex mutex_;
  std::vector<Gone> gone_;
  Moment when_;
  std::unique_ptr<Coordinator> coordinator_;
  std::map<std::string, std::unique_ptr<Process>> processes_;
};

TEST_F(CoordinatorProcessTest, AKilledProcessIsNoticedLongBeforeItsLease) {
  ASSERT_TRUE(eventually([&] { return training() == 3; }));
  const Moment killed = clock_.now();
  processes_["b"]->signal(SIGKILL);
  ASSERT_TRUE(eventually([&] { return last_gone().has_value(); }));
  EXPECT_EQ(last_gone()->key.id, "b");
  EXPECT_EQ(last_gone()->reason, "its connection broke");
  EXPECT_LT(gone_at() - killed, 1s);
  RecordProperty("noticed_ms", std::to_string(seconds(gone_at() - killed) * 1e3));
  ASSERT_TRUE(eventually([&] { return training() == 2; }));
}

TEST_F(CoordinatorProcessTest, AStoppedProcessIsOutAndComesBackAsAJoiner) {
  ASSERT_TRUE(eventually([&] { return training() == 3; }));
  WorkerKey before;
  for (const Member& member : coordinator_->status().roster.members) {
    if (member.key.id == "c") before = member.key;
  }
  processes_["c"]->signal(SIGSTOP);
  ASSERT_TRUE(eventually([&] { return training() == 2 && last_gone(); }));
  EXPECT_THAT(last_gone()->reason, HasSubstr("nothing was heard from it for 2.0s"));
  processes_["c"]->signal(SIGCONT);
  ASSERT_TRUE(eventually([&] { return training() == 3; }));
  for (const Member& member : coordinator_->status().roster.members) {
    EXPECT_NE(member.key, before) << "its old key is out for good";
  }
}

TEST_F(CoordinatorProcessTest, AProcessThatIsToldToGoLeavesInGoodOrder) {
  ASSERT_TRUE(eventually([&] { return training() == 3; }));
  processes_["a"]->signal(SIGTERM);
  EXPECT_EQ(processes_["a"]->wait(), 0);
  ASSERT_TRUE(eventually([&] { return training() == 2 && last_gone(); }));
  EXPECT_EQ(last_gone()->cause, RemovalCause::kLeft) << last_gone()->reason;
}

TEST_F(CoordinatorProcessTest, AProcessThatIsToldToGoEndsWithoutACoordinatorToo) {
  ASSERT_TRUE(eventually([&] { return training() == 3; }));
  coordinator_.reset();
  processes_["a"]->signal(SIGTERM);
  EXPECT_EQ(processes_["a"]->wait(), -SIGALRM);
}

TEST_F(CoordinatorProcessTest, AllButOneKilledAtOnce) {
  ASSERT_TRUE(eventually([&] { return training() == 3; }));
  processes_["a"]->signal(SIGKILL);
  processes_["c"]->signal(SIGKILL);
  ASSERT_TRUE(eventually([&] { return training() == 1; }));
}

}  // namespace
}  // namespace muster::roster
