#include "tools/muster-launch/verify/ongoing.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Finished = Ongoing::Finished;

// A process that does nothing.
class Idler {
 public:
  Idler() : pid_(fork()) {
    while (pid_ == 0) pause();
  }
  ~Idler() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Idler(const Idler&) = delete;
  Idler& operator=(const Idler&) = delete;
  pid_t pid() const { return pid_; }
  Target target() const { return {"1", pid_, 7}; }
  char state() const {
    std::ifstream stat("/proc/" + std::to_string(pid_) + "/stat");
    const std::string text{std::istreambuf_iterator<char>(stat), {}};
    return text[text.rfind(") ") + 2];
  }
  void await(bool stopped) const {
    while ((state() == 'T') != stopped) std::this_thread::sleep_for(1ms);
  }

 private:
  pid_t pid_;
};

class FakeTraining final : public Training {
 public:
  Status start(const launch::Streams&) override { return {}; }
  std::optional<int> look() override { return std::nullopt; }
  pid_t coordinator() const override { return coordinator_; }
  bool restart_coordinator(double) override {
    coordinator_ = 0;
    return true;
  }
  bool is_child(pid_t worker) const override { return worker == child_; }

  pid_t coordinator_ = 0;
  pid_t child_ = 0;
};

class OngoingTest : public testing::Test {
 protected:
  const DisturbPlan plan_;
  FakeTraining training_;
  const Idler idler_;
};

TEST_F(OngoingTest, AStoppedWorkerContinuesInTime) {
  Ongoing ongoing(plan_, training_);
  EXPECT_TRUE(ongoing.nothing());
  ASSERT_TRUE(ongoing.stop(4, idler_.target(), 102));
  idler_.await(true);
  EXPECT_TRUE(ongoing.involves(idler_.target()));
  EXPECT_THAT(ongoing.finished(101, 0), IsEmpty());
  EXPECT_THAT(ongoing.finished(102, 0), ElementsAre(Finished{4}));
  idler_.await(false);
  EXPECT_TRUE(ongoing.nothing());
}

TEST_F(OngoingTest, NobodyIsLeftStopped) {
  training_.coordinator_ = idler_.pid();
  {
    Ongoing ongoing(plan_, training_);
    ASSERT_TRUE(ongoing.pause_coordinator(1, 1e9));
    idler_.await(true);
    EXPECT_TRUE(ongoing.coordinator_is_away());
    EXPECT_FALSE(ongoing.pause_coordinator(2, 1e9)) << "it is away already";
    EXPECT_FALSE(ongoing.restart_coordinator(2, 1));
  }
  idler_.await(false);
}

TEST_F(OngoingTest, ARestartIsOverWhenThereIsACoordinatorAgain) {
  Ongoing ongoing(plan_, training_);
  EXPECT_FALSE(ongoing.restart_coordinator(3, 1)) << "there is none yet";
  training_.coordinator_ = idler_.pid();
  ASSERT_TRUE(ongoing.restart_coordinator(3, 1));
  EXPECT_TRUE(ongoing.coordinator_is_away());
  EXPECT_THAT(ongoing.finished(1, 0), IsEmpty());
  training_.coordinator_ = idler_.pid();
  EXPECT_THAT(ongoing.finished(2, 0), ElementsAre(Finished{3}));
  EXPECT_FALSE(ongoing.coordinator_is_away());
}

// With a coordinator of our own we are the launcher.
TEST_F(OngoingTest, AWorkerThatHangsIsKilledOnceItWasRemoved) {
  training_.child_ = idler_.pid();
  Ongoing ongoing(plan_, training_);
  if (!ongoing.hang(5, idler_.target())) GTEST_SKIP() << "no ptrace";
  ongoing.see({idler_.target()});
  std::this_thread::sleep_for(20ms);
  EXPECT_THAT(ongoing.finished(1, 0), IsEmpty());
  ongoing.see({{"1", 5, 8}});  // somebody else has the id
  while (waitpid(idler_.pid(), nullptr, WNOHANG) == 0 || kill(idler_.pid(), 0) == 0) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_THAT(ongoing.finished(2, 0), ElementsAre(Finished{5}));
}

TEST_F(OngoingTest, WithoutANetworkNothingIsCut) {
  Ongoing ongoing(plan_, training_);
  EXPECT_FALSE(ongoing.cut(1, {"0", 1, 1}, {"1", 2, 2}, 10, 1, 100));
}

}  // namespace
}  // namespace muster::cli
