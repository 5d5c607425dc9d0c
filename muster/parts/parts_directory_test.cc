#include "muster/parts/parts_directory.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

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

// The leftovers of a killed remove(): of which plan they were is not known any more.
TEST_F(PartsDirectoryTest, PartsWithoutAPlanAreNotTakenForThoseOfAnother) {
  ASSERT_TRUE(open().agree(plan_).ok());
  work();
  ASSERT_TRUE(open().assemble([](WritableFile& file) { return file.append("old"); }).ok());
  ASSERT_TRUE(files_->remove_all(path_ + "/plan.json").ok());
  PartPlan other = plan_;
  other.facts["layer"] = "fc1";
  auto directory = open();
  ASSERT_TRUE(directory.agree(other).ok());
  EXPECT_FALSE(directory.has_result());
  EXPECT_EQ(directory.done(other).value(), std::vector<bool>(3));
  EXPECT_EQ(directory.claim(other).value()->part, 0U);
}

TEST_F(PartsDirectoryTest, AResultIsAssembledOnce) {
  const auto directory = open();
  const std::string out = scratch_.path() + "/out";
  // What a process left that was killed while it wrote.
  ASSERT_TRUE(write_file_atomically(*files_, path_ + "/joined", "torn and much longer").ok());
  const auto failed = directory.assemble([](WritableFile& file) -> Status {
    MUSTER_RETURN_IF_ERROR(file.append("half"));
    return Error(ErrorKind::kIo, "the disk is full");
  });
  EXPECT_FALSE(failed.ok());
  EXPECT_FALSE(directory.has_result());
  int written = 0;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(open()
                    .assemble([&](WritableFile& file) {
                      ++written;
                      return file.append("whole");
                    })
                    .ok());
    EXPECT_TRUE(directory.has_result());
  }
  EXPECT_EQ(written, 1);
  ASSERT_TRUE(write_file_atomically(*files_, out, "what was there before").ok());
  ASSERT_TRUE(directory.publish(out).ok());
  EXPECT_EQ(files_->read(out).value(), "whole");
  EXPECT_FALSE(directory.has_result());
}

// The process that writes the result dies in the middle; another one, which waits, writes it.
TEST_F(PartsDirectoryTest, AResultOfAProcessThatWasKilledIsWrittenByAnother) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    (void)open().assemble([&](WritableFile& file) -> Status {
      (void)file.append("torn and much longer");
      (void)!write(ready[1], "x", 1);
      pause();
      return {};
    });
    _exit(1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const pid_t other = fork();
  if (other == 0) {
    const auto status = open().assemble([](WritableFile& file) { return file.append("whole"); });
    _exit(status.ok() ? 0 : 1);
  }
  EXPECT_FALSE(open().has_result());
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  waitpid(other, &status, 0);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(open().publish(scratch_.path() + "/out").ok());
  EXPECT_EQ(files_->read(scratch_.path() + "/out").value(), "whole");
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
