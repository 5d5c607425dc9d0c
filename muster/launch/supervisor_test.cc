// With real processes: a worker here is a line of shell. Nothing is checked by its luck with time:
// a bound is only there to end a test that is broken, or is far below what would be wrong.
#include "muster/launch/supervisor.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/thread.h"
#include "muster/launch/local_starter.h"

namespace muster::launch {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

// Whether the process whose id that file has is stopped.
bool is_stopped(const std::string& file) {
  int pid = 0;
  std::ifstream(file) >> pid;
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(stat), {}};
  const size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text[name_end + 2] == 'T';
}

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() : folder_((std::filesystem::temp_directory_path() / "muster-XXXXXX").string()) {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    options_.ids = {"0"};
    options_.on_exit = [this](const std::string& id, int64_t process, const std::string& how) {
      EXPECT_GT(process, 0);
      exits_.push_back(fmt::format("{} {}", id, how));
    };
    options_.on_event = [this](const std::string& sentence) { events_.push_back(sentence); };
    options_.finished = [this] { return std::filesystem::exists(path("finished")); };
  }
  ~SupervisorTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // `script`: shell, in the test's folder, with the slot's id as $id. `attempt` counts its starts.
  Result<JobEnd> run(const std::string& script) {
    const std::string line = fmt::format(
        "cd {}; id=$2; echo >> starts.$id; attempt=$(wc -l < starts.$id); {}", folder_, script);
    LocalStarter starter({"/bin/sh", {"-c", line, "worker"}, folder_}, held_);
    return Supervisor(options_, starter, held_, waker_, clock_).run();
  }

  // Once that file is there, which the script makes when it is ready.
  Thread when_there(const std::string& name, std::function<void()> then) const {
    return Thread("test", [file = path(name), then = std::move(then)] {
      while (!std::filesystem::exists(file)) std::this_thread::sleep_for(1ms);
      then();
    });
  }

  int starts(const std::string& id) const {
    std::ifstream file(path("starts." + id));
    std::string line;
    int count = 0;
    while (std::getline(file, line)) ++count;
    return count;
  }

  // What the coordinator would report of the worker whose process id is in that file.
  KillRequest hung(const std::string& id, const std::string& pid_file) const {
    int64_t process = 0;
    std::ifstream(path(pid_file)) >> process;
    return {id, process, "it hangs: no progress for 3s after step 7", clock_.now()};
  }

  std::string folder_;
  const SystemClock clock_;
  const HeldSignals held_;
  SupervisorOptions options_;
  const Waker waker_;
  std::vector<std::string> exits_;
  std::vector<std::string> events_;
};

TEST_F(SupervisorTest, WhoIsKilledIsStartedAgainUntilTheJobIsFinished) {
  const auto end = run("[ $attempt = 3 ] || kill -9 $$; touch finished");
  ASSERT_TRUE(end.ok());
  EXPECT_TRUE(end->finished);
  EXPECT_FALSE(end->failure);
  EXPECT_THAT(exits_, ElementsAre("0 was killed by SIGKILL", "0 was killed by SIGKILL", "0 left"));
  EXPECT_THAT(events_, testing::Contains("worker 0 was killed by SIGKILL; it is started again"));
  EXPECT_THAT(events_,
              testing::Contains("worker 0 was killed by SIGKILL; it is started again in 0.1 s"));
}

TEST_F(SupervisorTest, WhatWouldComeAgainEndsTheJobAndTheFirstToFailIsShown) {
  options_.ids = {"0", "1", "2"};
  // Worker 1 fails; the others fail because they are told to stop.
  const auto end =
      run("trap 'echo echo >&2; exit 5' INT;"
          "if [ $id = 1 ]; then while ! [ -e up.0 -a -e up.2 ]; do sleep 0.01; done;"
          "  echo bad label in line 7 >&2; exit 4; fi;"
          "touch up.$id; while :; do sleep 0.01; done");
  ASSERT_TRUE(end.ok());
  EXPECT_FALSE(end->finished);
  ASSERT_TRUE(end->failure);
  EXPECT_EQ(end->failure->id, "1");
  EXPECT_EQ(end->failure->ending.exit_code, 4);
  EXPECT_EQ(end->failure->last_words, "bad label in line 7");
  EXPECT_EQ(end->stopped_by, 0);
  EXPECT_THAT(end->killed, ElementsAre());
  EXPECT_EQ(exits_.size(), 3u);
}

TEST_F(SupervisorTest, AFailureAfterTheEndOfTheJobIsThatOfTheJob) {
  options_.ids = {"0", "1"};
  options_.ended = [this] { return std::filesystem::exists(path("ended")); };
  // Worker 1 is started again while the job runs, but not after its end.
  const auto end =
      run("if [ $id = 0 ]; then while ! [ -e ended ]; do sleep 0.01; done; exit 0; fi;"
          "[ $attempt = 1 ] || touch ended; echo no permission >&2; exit 5");
  ASSERT_TRUE(end.ok());
  EXPECT_FALSE(end->finished);
  ASSERT_TRUE(end->failure);
  EXPECT_EQ(end->failure->id, "1");
  EXPECT_EQ(end->failure->ending.exit_code, 5);
  EXPECT_EQ(end->failure->last_words, "no permission");
  EXPECT_EQ(starts("1"), 2);
}

TEST_F(SupervisorTest, GivesUpASlotAndGoesOnWithTheOthers) {
  options_.ids = {"0", "1"};
  options_.restarts.most = 2;
  options_.restarts.first_pause = 1ms;
  options_.can_go_on = [](size_t slots) { return slots >= 1; };
  const auto end =
      run("if [ $id = 0 ]; then echo try $attempt >&2; kill -SEGV $$; fi;"
          "while ! [ $(wc -l < starts.0) = 3 ]; do sleep 0.01; done; touch finished");
  ASSERT_TRUE(end.ok());
  EXPECT_TRUE(end->finished);
  EXPECT_EQ(starts("0"), 3);
  EXPECT_EQ(starts("1"), 1);
}

TEST_F(SupervisorTest, WithTooFewSlotsTheFirstFailureOfAllIsShown) {
  options_.ids = {"0", "1"};
  options_.restarts.most = 1;
  options_.restarts.first_pause = 1ms;
  const auto end =
      run("if [ $id = 0 ]; then while ! [ $(wc -l < starts.1) = 2 ] 2> /dev/null; do sleep 0.01;"
          "done; fi; echo worker $id try $attempt >&2; kill -SEGV $$");
  ASSERT_TRUE(end.ok());
  ASSERT_TRUE(end->failure);
  EXPECT_EQ(end->failure->last_words, "worker 1 try 1");
  EXPECT_EQ(end->failure->ending.signal, SIGSEGV);
}

TEST_F(SupervisorTest, OneSignalStopsTheJobAndNobodyIsStartedAgain) {
  options_.ids = {"0", "1"};
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    exits_.clear();
    std::filesystem::remove(path("up"));
    const auto killer = when_there("up", [&] { kill(getpid(), number); });
    const auto end =
        run("trap 'exit 130' INT; [ $id = 0 ] && touch up; while :; do sleep 0.01; done");
    ASSERT_TRUE(end.ok());
    EXPECT_EQ(end->stopped_by, number);
    EXPECT_FALSE(end->failure);
    EXPECT_THAT(end->killed, ElementsAre());
    EXPECT_EQ(exits_.size(), 2u);
  }
}

TEST_F(SupervisorTest, WhoDoesNotListenIsKilledInTime) {
  options_.patience = 100ms;
  const auto killer = when_there("up", [] { kill(getpid(), SIGTERM); });
  const auto end = run("trap '' INT; touch up; while :; do sleep 0.01; done");
  ASSERT_TRUE(end.ok());
  EXPECT_THAT(end->killed, ElementsAre("0"));
  EXPECT_EQ(end->stopped_by, SIGTERM);
  EXPECT_FALSE(end->failure);
}

TEST_F(SupervisorTest, WhoIsAsleepIsWokenToLeave) {
  options_.patience = 1h;
  const auto killer = when_there("up", [&] {
    while (!is_stopped(path("up"))) std::this_thread::sleep_for(1ms);
    kill(getpid(), SIGTERM);
  });
  const auto end =
      run("trap 'exit 130' INT; echo $$ > pid; mv pid up; kill -STOP $$;"
          "while :; do sleep 0.01; done");
  ASSERT_TRUE(end.ok());
  EXPECT_THAT(end->killed, ElementsAre());
}

TEST_F(SupervisorTest, ASecondInterruptKillsAtOnceButNotASecondHangup) {
  options_.patience = 1h;
  std::atomic<bool> second = false;
  const auto killer = when_there("up", [&] {
    kill(getpid(), SIGHUP);
    kill(getpid(), SIGHUP);  // as the kernel and the shell both do when a terminal closes
    while (!std::filesystem::exists(path("heard"))) std::this_thread::sleep_for(1ms);
    kill(getpid(), SIGINT);  // within half a second: still the same, passed on by somebody
    std::this_thread::sleep_for(600ms);
    second = true;
    kill(getpid(), SIGINT);
  });
  const auto end = run("trap 'touch heard' INT; touch up; while :; do sleep 0.01; done");
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->stopped_by, SIGHUP);
  EXPECT_THAT(end->killed, ElementsAre("0"));
  EXPECT_TRUE(end->hurried);
  EXPECT_TRUE(second);
}

TEST_F(SupervisorTest, AStopThroughAWorkerStopsTheJob) {
  options_.ids = {"0", "1"};
  const auto end =
      run("[ $id = 1 ] && exit 130; trap 'exit 130' INT; while :; do sleep 0.01; done");
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->stopped_by, SIGINT);
  EXPECT_EQ(starts("1"), 1);
}

TEST_F(SupervisorTest, WhenTheJobIsFinishedStragglersGetAMoment) {
  options_.ids = {"0", "1", "2"};
  options_.patience = 200ms;
  const auto end =
      run("case $id in 0) touch finished;; 1) while ! [ -e finished ]; do sleep 0.01; done;;"
          "*) trap '' INT; while :; do sleep 0.01; done;; esac");
  ASSERT_TRUE(end.ok());
  EXPECT_TRUE(end->finished);
  EXPECT_THAT(end->killed, ElementsAre("2"));
}

TEST_F(SupervisorTest, WhoLeavesIsNotCalledBack) {
  options_.ids = {"0", "1"};
  const auto end = run("exit 0");
  ASSERT_TRUE(end.ok());
  EXPECT_FALSE(end->finished);
  EXPECT_EQ(end->unfinished_leavers, 2u);
  EXPECT_EQ(starts("0"), 1);
}

TEST_F(SupervisorTest, AProgramThatIsNotThereIsAnError) {
  LocalStarter starter({"/nowhere/worker", {}, folder_}, held_);
  const auto end = Supervisor(options_, starter, held_, waker_, clock_).run();
  ASSERT_FALSE(end.ok());
  EXPECT_THAT(end.error().message(), HasSubstr("/nowhere/worker"));
}

TEST_F(SupervisorTest, SleepsUntilSomethingIsDue) {
  int looks = 0;
  const Moment due = clock_.now() + 300ms;
  options_.look = [&](Moment now) -> std::optional<Moment> {
    ++looks;
    if (now >= due) std::ofstream(path("leave"));
    return now < due ? std::optional(due) : std::nullopt;
  };
  const auto end = run("while ! [ -e leave ]; do sleep 0.01; done; touch finished");
  ASSERT_TRUE(end.ok());
  EXPECT_TRUE(end->finished);
  EXPECT_LT(looks, 6);
}

TEST_F(SupervisorTest, AFailureBesideTheWorkersEndsTheJob) {
  options_.ids = {"0", "1"};
  bool taken = false;
  options_.take_failure = [&]() -> std::optional<WorkerFailure> {
    const bool up = std::filesystem::exists(path("up.0")) && std::filesystem::exists(path("up.1"));
    if (!up || std::exchange(taken, true)) return std::nullopt;
    return WorkerFailure{"server0", clock_.now(), {8, 0}, "left", "no memory", "parameter server"};
  };
  const auto waker = when_there("up.0", [&] {
    while (!std::filesystem::exists(path("up.1"))) std::this_thread::sleep_for(1ms);
    waker_.wake();
  });
  const auto end =
      run("trap 'touch told.$id; exit 5' INT; touch up.$id; while :; do sleep 0.01; done");
  ASSERT_TRUE(end.ok());
  EXPECT_FALSE(end->finished);
  EXPECT_TRUE(end->killed.empty());
  ASSERT_TRUE(end->failure);
  EXPECT_EQ(end->failure->id, "server0") << "workers failed because they were told to stop";
  EXPECT_EQ(end->failure->role, "parameter server");
  EXPECT_TRUE(std::filesystem::exists(path("told.0")));
  EXPECT_TRUE(std::filesystem::exists(path("told.1")));
  EXPECT_EQ(starts("0"), 1);
}

TEST_F(SupervisorTest, CanBeWoken) {
  bool told = false;
  options_.look = [&](Moment) -> std::optional<Moment> {
    if (std::filesystem::exists(path("told")) && !told) {
      told = true;
      std::ofstream(path("leave"));
    }
    return std::nullopt;
  };
  const auto waker = when_there("up", [&] {
    const std::ofstream told(path("told"));
    waker_.wake();
  });
  const auto end = run("touch up; while ! [ -e leave ]; do sleep 0.01; done; touch finished");
  ASSERT_TRUE(end.ok());
  EXPECT_TRUE(end->finished);
}

TEST_F(SupervisorTest, AHungWorkerIsKilledAndReplaced) {
  options_.ids = {"0", "1"};
  KillRequests kill_requests;
  options_.take_kill_requests = [&] { return kill_requests.take(); };
  const auto coordinator = when_there("up.1", [&] {
    kill_requests.add(hung("1", "up.1"));
    waker_.wake();
  });
  const auto end =
      run("trap '' INT TERM HUP; echo $$ > pid.$id; [ $id$attempt = 12 ] && touch finished;"
          "mv pid.$id up.$id; while ! [ -e finished ]; do sleep 0.01; done");
  ASSERT_TRUE(end.ok());
  EXPECT_TRUE(end->finished);
  EXPECT_THAT(exits_, testing::Contains("1 was killed by SIGKILL"));
  EXPECT_THAT(events_, testing::Contains("worker 1 is killed: the coordinator removed it because "
                                         "it hangs: no progress for 3s after step 7"));
  EXPECT_EQ(starts("0"), 1);
  EXPECT_EQ(starts("1"), 2);
}

TEST_F(SupervisorTest, AReportOfAnotherProcessKillsNobody) {
  KillRequests kill_requests;
  options_.take_kill_requests = [&] { return kill_requests.take(); };
  const auto coordinator = when_there("up", [&] {
    auto other = hung("0", "up");
    ++other.process;  // whoever had the id before
    kill_requests.add(other);
    kill_requests.add(hung("stranger", "up"));  // started by `muster join`
    auto old = hung("0", "up");
    old.when -= 1h;  // before this one was started
    kill_requests.add(old);
    waker_.wake();
    std::ofstream(path("leave"));
  });
  const auto end =
      run("echo $$ > pid; mv pid up; while ! [ -e leave ]; do sleep 0.01; done; touch finished");
  ASSERT_TRUE(end.ok());
  EXPECT_THAT(exits_, ElementsAre("0 left"));
}

TEST_F(SupervisorTest, OtherSignalsReachEveryWorker) {
  options_.ids = {"0", "1"};
  const auto sender = when_there("up.0", [&] {
    while (!std::filesystem::exists(path("up.1"))) std::this_thread::sleep_for(1ms);
    kill(getpid(), SIGUSR1);
  });
  const auto end =
      run("trap 'touch heard.$id' USR1; touch up.$id;"
          "while ! [ -e heard.0 -a -e heard.1 ]; do sleep 0.01; done; touch finished");
  ASSERT_TRUE(end.ok());
  EXPECT_TRUE(end->finished);
}

}  // namespace
}  // namespace muster::launch
