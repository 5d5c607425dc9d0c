#include "tools/muster-launch/verify/commits.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(ReadCommits, TakesWholeLinesOfSteps) {
  CommitTimes times;
  uint64_t rollback = 0;
  const std::string whole =
      "{\"step\":1,\"time\":10.5,\"loss\":2}\n"
      "{\"step\":1,\"test\":{\"loss\":2}}\n"  // an evaluation
      "nonsense\n[]\n{\"time\":3}\n{\"step\":\"x\",\"time\":3}\n{\"step\":2,\"time\":null}\n"
      "{\"step\":2,\"time\":11}\n";
  EXPECT_EQ(read_commits(whole + "{\"step\":3,\"ti", times, rollback), whole.size());
  EXPECT_THAT(times, ElementsAre(Pair(1, 10.5), Pair(2, 11.0)));
  EXPECT_EQ(read_commits("", times, rollback), 0U);
}

TEST(ReadCommits, StepsBehindARollbackComeOnceMore) {
  CommitTimes times;
  uint64_t rollback = 0;
  read_commits(
      "{\"step\":1,\"time\":1}\n{\"step\":2,\"time\":2}\n{\"step\":3,\"time\":3}\n"
      "{\"step\":2,\"time\":7,\"rollback\":9}\n"
      "{\"step\":3,\"time\":4}\n",  // from a worker that does not know of it
      times, rollback);
  EXPECT_THAT(times, ElementsAre(Pair(1, 1), Pair(2, 7)));
}

class CommitsTest : public testing::Test {
 protected:
  CommitsTest() {
    std::filesystem::remove(path_);
    std::filesystem::remove(other_);
  }
  static void append(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::app) << text;
  }
  static std::string line(int step, double time) {
    return fmt::format("{{\"step\":{},\"time\":{}}}\n", step, time);
  }
  const std::string path_ = testing::TempDir() + "/verify_commits_test.jsonl";
  const std::string other_ = testing::TempDir() + "/verify_commits_test.next";
};

TEST_F(CommitsTest, SeesWhatComes) {
  Commits commits(path_);
  commits.look();
  EXPECT_EQ(commits.newest(), 0U) << "there is no file yet";
  append(path_, line(1, 5) + "{\"step\":2,");
  commits.look();
  EXPECT_EQ(commits.newest(), 1U);
  append(path_, "\"time\":6}\n");
  commits.look();
  EXPECT_THAT(commits.times(), ElementsAre(Pair(1, 5.0), Pair(2, 6.0)));
}

TEST_F(CommitsTest, AFileThatWasReplacedIsReadAnewEvenIfItIsAsLong) {
  Commits commits(path_);
  append(path_, line(1, 5) + line(2, 6) + line(3, 7));
  commits.look();
  // Twice, so that a file system that gives out inodes again could give back the first.
  for (const double later : {8.0, 9.0}) {
    append(other_, line(1, 5) + line(2, 6) + line(3, later));
    std::filesystem::rename(other_, path_);
  }
  commits.look();
  EXPECT_THAT(commits.times(), ElementsAre(Pair(1, 5.0), Pair(2, 6.0), Pair(3, 9.0)));
}

TEST_F(CommitsTest, AShorterFileForgetsWhatComesAgain) {
  Commits commits(path_);
  append(path_, line(1, 5) + line(2, 6));
  commits.look();
  std::filesystem::resize_file(path_, line(1, 5).size());
  commits.look();
  EXPECT_EQ(commits.newest(), 1U);
  std::filesystem::remove(path_);
  commits.look();
  EXPECT_EQ(commits.newest(), 1U) << "a moment without a file is no news";
}

}  // namespace
}  // namespace muster::cli
