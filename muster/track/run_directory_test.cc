#include "muster/track/run_directory.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/fault_injection_testing.h"
#include "muster/track/temp_directory_testing.h"

namespace muster::track {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// 2026-03-01 12:30:05 UTC
constexpr WallTime kNow{std::chrono::seconds(1772368205)};

class RunDirectoryTest : public testing::Test {
 protected:
  RunDirectory create(std::string_view name = "lenet") {
    auto run = RunDirectory::create(*fs_, root(), name, clock_);
    EXPECT_TRUE(run.ok()) << run.error().message();
    EXPECT_TRUE(run->write_job("muster: 1\n").ok());
    return *run;
  }
  std::string root() const { return temp_.path() + "/runs"; }

  TempDirectory temp_;
  std::unique_ptr<FileSystem> fs_ = posix_file_system();
  FakeClock clock_{kNow};
};

TEST_F(RunDirectoryTest, IsNamedByJobAndTimeAndNeverShared) {
  EXPECT_EQ(create().path(), root() + "/lenet-20260301-123005");
  EXPECT_EQ(create().path(), root() + "/lenet-20260301-123005-2");
  EXPECT_EQ(create().path(), root() + "/lenet-20260301-123005-3");
  EXPECT_EQ(create("../a b/ü").path(), root() + "/-.-a-b----20260301-123005");
  EXPECT_EQ(create("").path(), root() + "/job-20260301-123005");
}

TEST_F(RunDirectoryTest, ManyStartsInOneSecondGetOneEach) {
  std::atomic<int> made{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) made += RunDirectory::create(*fs_, root(), "x", clock_).ok();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(made, 40);
  const auto names = fs_->list(root());
  EXPECT_EQ(names->size(), 41u) << "40 runs and latest, nothing aside";
}

TEST_F(RunDirectoryTest, LatestPointsToTheLastOneAndCanBeOpened) {
  create();
  const auto second = create("gpt");
  EXPECT_EQ(std::filesystem::read_symlink(root() + "/latest"), "gpt-20260301-123005");
  ASSERT_TRUE(second.write_result({{"steps", 3}}).ok());
  const auto latest = RunDirectory::open(*fs_, root() + "/latest/");
  ASSERT_TRUE(latest.ok()) << latest.error().message();
  EXPECT_EQ(latest->read_result()->at("steps"), 3);
}

TEST_F(RunDirectoryTest, ADiskWithoutLinksIsNoReasonToFail) {
  FaultInjectionFileSystem fs;
  fs.fail_at(3, Fault::kOnce);  // create_directories, create_directory, sync_directory, symlink
  const auto run = RunDirectory::create(fs, "runs", "lenet", clock_);
  ASSERT_TRUE(run.ok()) << run.error().message();
  EXPECT_FALSE(fs.exists("runs/latest"));
}

TEST_F(RunDirectoryTest, OpeningSomethingElseIsASentence) {
  const auto run = RunDirectory::open(*fs_, temp_.path());
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().kind(), ErrorKind::kUsage);
  EXPECT_THAT(run.error().message(), HasSubstr("is not a run directory"));
}

TEST_F(RunDirectoryTest, StatusTellsWhatHappened) {
  const auto run = create();
  EXPECT_EQ(run.read_status().state, RunState::kUnknown);
  {
    const auto lock = run.lock();
    ASSERT_TRUE(lock.ok());
    ASSERT_TRUE(run.write_status(RunState::kRunning, "", 0, clock_).ok());
    EXPECT_EQ(run.read_status().state, RunState::kRunning);
    clock_.advance(std::chrono::seconds(60));
    ASSERT_TRUE(run.write_status(RunState::kInterrupted, "SIGTERM", 120, clock_).ok());
  }
  const RunStatus status = run.read_status();
  EXPECT_EQ(status.state, RunState::kInterrupted);
  EXPECT_EQ(status.reason, "SIGTERM");
  EXPECT_EQ(status.started, "2026-03-01T12:30:05Z");
  EXPECT_EQ(status.updated, "2026-03-01T12:31:05Z");
  EXPECT_EQ(status.step, 120);
}

TEST_F(RunDirectoryTest, TwoHoldersInOneProcessExcludeEachOther) {
  const auto run = create();
  EXPECT_FALSE(RunLock::is_held(run.lock_file()));
  auto lock = run.lock();
  ASSERT_TRUE(lock.ok());
  EXPECT_TRUE(RunLock::is_held(run.lock_file()));
  const auto second = run.lock();
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().kind(), ErrorKind::kUsage);
  EXPECT_THAT(second.error().message(), HasSubstr("another process is training in"));
  {
    const RunLock moved = std::move(*lock);
  }
  EXPECT_FALSE(RunLock::is_held(run.lock_file()));
  EXPECT_TRUE(run.lock().ok());
}

TEST_F(RunDirectoryTest, AnotherProcessIsKeptOutUntilItsHolderDies) {
  const auto run = create();
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto lock = run.lock();
    const char byte = lock.ok() && run.write_status(RunState::kRunning, "", 7, clock_).ok();
    if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 1);
  EXPECT_FALSE(run.lock().ok());
  EXPECT_EQ(run.read_status().state, RunState::kRunning);

  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(run.read_status().state, RunState::kDied);
  EXPECT_EQ(run.read_status().step, 7);
  EXPECT_TRUE(run.lock().ok());
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(RunDirectoryTest, ListsRunsWhateverElseLiesThere) {
  EXPECT_THAT(*list_runs(*fs_, root()), IsEmpty());
  const auto newer = create("a");
  clock_.advance(std::chrono::seconds(5));
  ASSERT_TRUE(newer.write_status(RunState::kFinished, "", 10, clock_).ok());
  ASSERT_TRUE(newer.write_result({{"weights_hash", "ab"}}).ok());
  const auto older = create("z");
  ASSERT_TRUE(older.write_status(RunState::kFailed, "disk full", 3, FakeClock{kNow}).ok());
  const auto broken = create("m");
  std::ofstream(broken.status_file()) << "{\"state\": ";
  std::ofstream(broken.result_file()) << "[1, 2]";
  std::ofstream(root() + "/a file") << "x";
  std::ofstream(root() + "/.hidden") << "x";
  std::filesystem::create_directory(root() + "/not a run");
  std::filesystem::create_directory_symlink("nowhere", root() + "/dangling");
  std::filesystem::create_directories(root() + "/odd/status.json");
  std::filesystem::create_directories(root() + "/odd/job.yaml");

  const auto runs = list_runs(*fs_, root());
  ASSERT_TRUE(runs.ok()) << runs.error().message();
  std::vector<std::string> names;
  for (const auto& run : *runs) names.push_back(run.name);
  EXPECT_THAT(names,
              ElementsAre("m-20260301-123010", "odd", "z-20260301-123010", "a-20260301-123005"));
  EXPECT_EQ(runs->at(0).status.state, RunState::kUnknown);
  EXPECT_TRUE(runs->at(0).result.is_null());
  EXPECT_EQ(runs->at(2).status.reason, "disk full");
  EXPECT_EQ(runs->at(3).result.at("weights_hash"), "ab");
}

}  // namespace
}  // namespace muster::track
