#include "tools/muster/own_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/config/load.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;

const char* const kAnswer =
    R"({"job": {"muster": 1, "batch": 8}, "start": ["/a b/python3", "-m"]})";

TEST(OwnProgramTest, ReadsAnAnswer) {
  const auto program = read_answer("train.py", kAnswer);
  ASSERT_TRUE(program.ok());
  EXPECT_THAT(program->start, testing::ElementsAre("/a b/python3", "-m"));
  EXPECT_THAT(program->job, HasSubstr("\"batch\":8"));
}

TEST(OwnProgramTest, AnythingElseIsRefused) {
  for (const char* const answer :
       {"", "{", "[]", R"({"job": 3, "start": ["a"]})", R"({"job": {}, "start": []})",
        R"({"job": {}, "start": ["a", 1]})"}) {
    const auto program = read_answer("train.py", answer);
    ASSERT_FALSE(program.ok()) << answer;
    EXPECT_THAT(program.error().message(), HasSubstr("run.steps()"));
  }
}

TEST(OwnProgramTest, TheJobIsThatOfTheProgramWithChanges) {
  const auto files = posix_file_system();
  const auto sources = job_sources(
      OwnProgram{.path = "train.py", .job = R"({"muster": 1, "batch": 8})", .start = {}},
      {"lanes=2"}, *files);
  ASSERT_TRUE(sources.ok());
  const auto read = config::read_job(*sources);
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_EQ(read->job.batch, 8);
  EXPECT_EQ(read->job.lanes, 2);
}

TEST(OwnProgramTest, ErrorsNameTheProgram) {
  const auto files = posix_file_system();
  const auto sources =
      job_sources(OwnProgram{.path = "train.py", .job = R"({"bach": 8})", .start = {}}, {}, *files);
  ASSERT_TRUE(sources.ok());
  const auto read = config::read_job(*sources);
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message(), HasSubstr("train.py"));
}

}  // namespace
}  // namespace muster::cli
