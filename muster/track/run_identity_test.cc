#include "muster/track/run_identity.h"

#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/track/temp_directory_testing.h"

namespace muster::track {
namespace {

using testing::HasSubstr;

class RunIdentityTest : public testing::Test {
 protected:
  // A run of a launcher.
  RunDirectory launch(const std::string& name, const std::string& job = "muster: 1\n") {
    const auto path = temp_.path() + "/" + name;
    EXPECT_TRUE(files_->create_directories(path).ok());
    std::ofstream(path + "/job.yaml") << job;
    auto run = RunDirectory::open(*files_, path);
    EXPECT_TRUE(run.ok());
    return *run;
  }
  RunOffer offer(const RunDirectory& run, bool anew = true) {
    const auto offered = begin_attempt(*files_, run, {.anew = anew, .to = "s3://bucket/run"});
    EXPECT_TRUE(offered.ok()) << offered.error().message();
    return offered.ok() ? *offered : RunOffer();
  }
  Result<bool> ready(const std::string& path, const RunOffer& offered) {
    return make_ready(*files_, path, offered, [this]() -> Status {
      ++renewed_;
      return {};
    });
  }
  std::string text(const std::string& path) { return *files_->read(path); }

  TempDirectory temp_;
  std::unique_ptr<FileSystem> files_ = posix_file_system();
  int renewed_ = 0;
};

TEST_F(RunIdentityTest, AHostThatSharesTheDirectoryFindsItReady) {
  const auto run = launch("run");
  const auto offered = offer(run);
  const auto is_launchers = ready(run.path(), offered);
  ASSERT_TRUE(is_launchers.ok()) << is_launchers.error().message();
  EXPECT_TRUE(*is_launchers);
  EXPECT_EQ(renewed_, 0);
}

TEST_F(RunIdentityTest, AHostWithoutTheDirectoryMakesIt) {
  const auto offered = offer(launch("run", "name: a\n"));
  const auto there = temp_.path() + "/there/run";
  ASSERT_TRUE(files_->create_directories(there + "/workers").ok());  // as `muster join` does
  const auto is_launchers = ready(there, offered);
  ASSERT_TRUE(is_launchers.ok()) << is_launchers.error().message();
  EXPECT_FALSE(*is_launchers);
  EXPECT_EQ(text(there + "/job.yaml"), "name: a\n");
  EXPECT_EQ(read_run_id(*files_, there)->run, offered.run);
  // The second worker of that host, and one that is started again.
  EXPECT_FALSE(*ready(there, offered));
  EXPECT_EQ(renewed_, 0);
}

TEST_F(RunIdentityTest, ADirectoryOfAnEarlierAttemptIsRenewedOnce) {
  const auto run = launch("run");
  const auto there = temp_.path() + "/there";
  const auto first = offer(run);
  EXPECT_FALSE(*ready(there, first));
  // A coordinator that is started again while workers train continues the same attempt.
  EXPECT_EQ(offer(run, /*anew=*/false), first);
  EXPECT_FALSE(*ready(there, first));
  EXPECT_EQ(renewed_, 0);
  ASSERT_TRUE(run.write_job("muster: 1\npasses: 9\n").ok());
  const auto second = offer(run);
  EXPECT_EQ(second.run, first.run);
  EXPECT_NE(second.attempt, first.attempt);
  EXPECT_FALSE(*ready(there, second));
  EXPECT_FALSE(*ready(there, second));
  EXPECT_EQ(renewed_, 1);
  EXPECT_EQ(text(there + "/job.yaml"), "muster: 1\npasses: 9\n");
  // A worker alone changed the job since, which begins no attempt.
  ASSERT_TRUE(run.write_job("muster: 1\npasses: 10\n").ok());
  EXPECT_FALSE(*ready(there, offer(run, /*anew=*/false)));
  EXPECT_EQ(renewed_, 2);
}

TEST_F(RunIdentityTest, AnotherRunAndOtherFilesAreLeftAlone) {
  const auto offered = offer(launch("run"));
  const auto another = launch("another", "name: b\n");
  (void)offer(another);
  const auto first = ready(another.path(), offered);
  ASSERT_FALSE(first.ok());
  EXPECT_EQ(first.error().kind(), ErrorKind::kRefused);
  EXPECT_THAT(first.error().message(), HasSubstr("is another run"));
  EXPECT_EQ(text(another.path() + "/job.yaml"), "name: b\n");
  // One that never had a copy is another run too.
  EXPECT_FALSE(ready(launch("old").path(), offered).ok());

  const auto home = temp_.path() + "/home";
  ASSERT_TRUE(files_->create_directories(home + "/photos").ok());
  const auto second = ready(home, offered);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message(), HasSubstr("files that are not those of a run"));
  EXPECT_FALSE(files_->exists(home + "/job.yaml"));
  EXPECT_EQ(renewed_, 0);
}

TEST_F(RunIdentityTest, ADirectoryInWhichALauncherWorksIsNotRenewed) {
  const auto run = launch("run");
  const auto there = temp_.path() + "/there";
  EXPECT_FALSE(*ready(there, offer(run)));
  const auto lock = RunLock::acquire(there + "/lock", there);
  ASSERT_TRUE(lock.ok());
  const auto busy = ready(there, offer(run));
  ASSERT_FALSE(busy.ok());
  EXPECT_EQ(busy.error().kind(), ErrorKind::kIo);
  EXPECT_EQ(renewed_, 0);
}

TEST_F(RunIdentityTest, OfManyWorkersOfAHostOneMakesTheDirectory) {
  const auto run = launch("run");
  const auto there = temp_.path() + "/there";
  EXPECT_FALSE(*ready(there, offer(run)));
  const auto offered = offer(run);
  std::atomic<int> renewed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto made = make_ready(*files_, there, offered, [&]() -> Status {
        ++renewed;
        return {};
      });
      EXPECT_TRUE(made.ok()) << made.error().message();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(renewed, 1);
}

TEST_F(RunIdentityTest, AnotherPlaceForTheCopyNeedsACheckpointHere) {
  const auto run = launch("run");
  const auto first = offer(run);
  AttemptOptions options{.anew = true, .to = "s3://bucket/other"};
  const auto refused = begin_attempt(*files_, run, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind(), ErrorKind::kUsage);
  EXPECT_THAT(refused.error().message(), HasSubstr("muster runs fetch s3://bucket/run"));
  EXPECT_EQ(offer(run, /*anew=*/false), first);
  options.has_checkpoint = true;
  const auto accepted = begin_attempt(*files_, run, options);
  ASSERT_TRUE(accepted.ok()) << accepted.error().message();
  EXPECT_TRUE(accepted->has_checkpoint);
  EXPECT_EQ(accepted->run, first.run);
}

TEST_F(RunIdentityTest, AClaimThatWasBegunCountsIfTheCopyHasIt) {
  const auto run = launch("run");
  ASSERT_TRUE(
      write_run_id(*files_, run.path(), {.run = "r", .writer = "old", .claiming = "new"}).ok());
  const auto id = read_run_id(*files_, run.path());
  ASSERT_TRUE(id.ok());
  EXPECT_TRUE(id->claimed_as("old"));
  EXPECT_TRUE(id->claimed_as("new"));
  EXPECT_FALSE(id->claimed_as("other"));
  EXPECT_FALSE((RunId{.run = "r", .writer = ""}.claimed_as("other")));
}

}  // namespace
}  // namespace muster::track
