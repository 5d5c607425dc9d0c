#include "muster/parts/parts_directory.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/scratch_directory.h"

namespace muster::parts {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PartsDirectoryTest : public ::testing::Test {
 protected:
  PartsDirectory open() { return PartsDirectory::open(*files_, path_).value(); }
  // Each line says its sample.
  Status finish(const PartsDirectory& directory, const Claim& claim) {
    return directory.finish(claim, [&](WritableFile& file) -> Status {
      for (uint64_t i = plan_.borders[claim.part]; i < plan_.borders[claim.part + 1]; ++i) {
        MUSTER_RETURN_IF_ERROR(file.append(fmt::format("{}\n", i)));
      }
      return {};
    });
  }
  // Of the process that calls it.
  void work() {
    auto directory = open();
    while (true) {
      auto claim = directory.claim(plan_).value();
      if (!claim) return;
      ASSERT_TRUE(finish(directory, *claim).ok());
    }
  }
  std::string joined() {
    const std::string out = scratch_.path() + "/out";
    const auto status = open().join(plan_, out);
    return status.ok() ? files_->read(out).value() : status.error().message();
  }

  const ScratchDirectory scratch_ = ScratchDirectory::make("parts").value();
  const std::unique_ptr<FileSystem> files_ = posix_file_system();
  const std::string path_ = scratch_.path() + "/out.parts";
  PartPlan plan_{{{"data", "abc"}, {"checkpoint", 5}}, "sample\n", {0, 2, 4, 7}};
  const std::string whole_ = "sample\n0\n1\n2\n3\n4\n5\n6\n";
};

TEST_F(PartsDirectoryTest, PartsAreJoinedInOrderWhateverTheOrderTheyWereDoneIn) {
  auto first = open();
  auto second = open();
  const auto a = first.claim(plan_).value();
  const auto b = second.claim(plan_).value();
  const auto c = first.claim(plan_).value();
  EXPECT_EQ(a->part, 0U);
  EXPECT_EQ(b->part, 1U);
  EXPECT_EQ(c->part, 2U);
  for (const auto* claim : {&c, &b, &a}) ASSERT_TRUE(finish(first, **claim).ok());
  EXPECT_EQ(joined(), whole_);
  EXPECT_TRUE(first.remove().ok());
  EXPECT_FALSE(files_->exists(path_));
}

TEST_F(PartsDirectoryTest, WhatWasDoneIsNotClaimedAgain) {
  {
    auto before = open();
    const auto claim = before.claim(plan_).value();
    ASSERT_TRUE(finish(before, *claim).ok());
  }
  auto after = open();
  EXPECT_EQ(after.claim(plan_).value()->part, 1U);
}

TEST_F(PartsDirectoryTest, APartThatWasClaimedAndNotWrittenIsClaimedAgain) {
  auto directory = open();
  {
    const auto dropped = directory.claim(plan_).value();
  }
  const auto b = directory.claim(plan_).value();
  ASSERT_TRUE(finish(directory, *b).ok());
  const auto c = directory.claim(plan_).value();
  ASSERT_TRUE(finish(directory, *c).ok());
  const auto a = directory.claim(plan_).value();
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(a->part, 0U);
  ASSERT_TRUE(finish(directory, *a).ok());
  EXPECT_FALSE(directory.claim(plan_).value().has_value());
  EXPECT_EQ(joined(), whole_);
}

// A process dies in the middle of a part; another one, which waits for it, takes the part over.
TEST_F(PartsDirectoryTest, APartOfAProcessThatWasKilledIsTakenOver) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto directory = open();
    const auto claim = directory.claim(plan_);
    (void)directory.finish(**claim, [&](WritableFile& file) -> Status {
      (void)file.append("0\n");
      (void)!write(ready[1], "x", 1);
      pause();
      return {};
    });
    _exit(1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const pid_t worker = fork();
  if (worker == 0) {
    work();
    _exit(HasFailure() ? 1 : 0);
  }
  // It has done the others, and waits.
  while (!files_->exists(open().part_file(2))) usleep(1000);
  EXPECT_FALSE(files_->exists(open().part_file(0)));
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  waitpid(worker, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(joined(), whole_);
}

TEST_F(PartsDirectoryTest, AnotherPlanIsRefused) {
  const auto directory = open();
  ASSERT_TRUE(directory.agree(plan_).ok());
  ASSERT_TRUE(open().agree(plan_).ok());
  EXPECT_EQ(*directory.plan().value(), plan_);
  PartPlan other = plan_;
  other.facts["checkpoint"] = 6;
  const auto refused = directory.agree(other);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind(), ErrorKind::kUsage);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("checkpoint was 5, and is now 6"), HasSubstr("remove")));
  other = plan_;
  other.facts["layer"] = "fc1";
  EXPECT_THAT(directory.agree(other).error().message(),
              HasSubstr("layer was not set, and is now 'fc1'"));
  other = plan_;
  other.borders = {0, 7};
  EXPECT_THAT(directory.agree(other).error().message(), HasSubstr("other parts"));
}

TEST_F(PartsDirectoryTest, DamageIsNoticed) {
  EXPECT_FALSE(open().plan().value().has_value());
  work();
  ASSERT_TRUE(write_file_atomically(*files_, open().part_file(1), "2\n").ok());
  EXPECT_THAT(joined(), HasSubstr("has 1 lines for 2 samples"));
  for (const char* text : {"", "{", "[]", R"({"version":2})", R"({"version":1,"facts":{}})",
                           R"({"version":1,"facts":{},"header":"","borders":[0,3,3]})",
                           R"({"version":1,"facts":[],"header":"","borders":[0,3]})"}) {
    ASSERT_TRUE(write_file_atomically(*files_, path_ + "/plan.json", text).ok());
    EXPECT_FALSE(open().plan().ok()) << text;
  }
}

TEST_F(PartsDirectoryTest, ADirectoryOfSomebodyElseIsRefused) {
  ASSERT_TRUE(files_->create_directories(path_).ok());
  ASSERT_TRUE(write_file_atomically(*files_, path_ + "/part-00000", "mine\n").ok());
  const auto refused = PartsDirectory::open(*files_, path_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind(), ErrorKind::kUsage);
  EXPECT_THAT(refused.error().message(), HasSubstr("something else"));
  ASSERT_TRUE(files_->remove_all(path_ + "/part-00000").ok());
  EXPECT_TRUE(open().remove().ok());
}

TEST_F(PartsDirectoryTest, OneLauncherAtATime) {
  const auto directory = open();
  {
    const auto lock = directory.lock();
    ASSERT_TRUE(lock.ok());
    EXPECT_THAT(open().lock().error().message(), HasSubstr("another process"));
  }
  EXPECT_TRUE(open().lock().ok());
}

}  // namespace
}  // namespace muster::parts
