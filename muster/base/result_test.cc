#include "muster/base/result.h"

#include <cerrno>
#include <memory>

#include <gtest/gtest.h>

namespace muster {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return Error(ErrorKind::kData, "{} is odd", n);
  return n / 2;
}

Result<int> quarter(int n) {
  MUSTER_TRY(const int once, half(n));
  MUSTER_TRY(const int twice, half(once));
  return twice;
}

Status check_even(int n) {
  MUSTER_RETURN_IF_ERROR(half(n).ok() ? Status() : Status(half(n).error()));
  return {};
}

TEST(Result, CarriesAValueOrAnError) {
  EXPECT_EQ(*quarter(12), 3);
  const auto odd = quarter(6);
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().kind(), ErrorKind::kData);
  EXPECT_EQ(odd.error().message(), "3 is odd");
  EXPECT_TRUE(check_even(2).ok());
  EXPECT_EQ(check_even(3).error().message(), "3 is odd");
}

TEST(Result, MovesWhatCannotBeCopied) {
  const auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(7); };
  const auto use = [&]() -> Result<int> {
    MUSTER_TRY(auto pointer, make());
    return *pointer;
  };
  EXPECT_EQ(*use(), 7);
}

TEST(Result, ContextGoesInFront) {
  const Error error = Error(ErrorKind::kIo, "disk full").context("step {}", 7).context("run");
  EXPECT_EQ(error.message(), "run: step 7: disk full");
  EXPECT_EQ(error.kind(), ErrorKind::kIo);
}

TEST(Result, IoErrorsSayWhatTheSystemSays) {
  const Error error = io_error(ENOSPC, "cannot write 'x'");
  EXPECT_EQ(error.message(), "cannot write 'x': No space left on device");
  EXPECT_EQ(error.kind(), ErrorKind::kIo);
}

// Scripts depend on these: the numbers are exit codes, the names are in JSON output.
TEST(ErrorKind, NumbersAndNamesAreForever) {
  const std::pair<ErrorKind, std::pair<int, const char*>> kinds[] = {
      {ErrorKind::kInternal, {1, "internal"}},
      {ErrorKind::kUsage, {2, "usage"}},
      {ErrorKind::kJob, {3, "job"}},
      {ErrorKind::kData, {4, "data"}},
      {ErrorKind::kIo, {5, "io"}},
      {ErrorKind::kCheckpoint, {6, "checkpoint"}},
      {ErrorKind::kNumerics, {7, "numerics"}},
      {ErrorKind::kMachine, {8, "machine"}},
      {ErrorKind::kInterrupted, {130, "interrupted"}}};
  for (const auto& [kind, expected] : kinds) {
    EXPECT_EQ(static_cast<int>(kind), expected.first);
    EXPECT_EQ(error_kind_name(kind), expected.second);
  }
}

TEST(ResultDeathTest, AskingForAMissingValueIsABug) {
  EXPECT_DEATH((void)*half(3), "muster: bug: .*3 is odd");
}

TEST(CheckDeathTest, SaysWhereAndWhat) {
  MUSTER_CHECK(true, "never printed");
  EXPECT_DEATH(MUSTER_CHECK(1 > 2, "numbers are broken"),
               "muster: bug: .*result_test.cc:[0-9]+: 1 > 2 does not hold: numbers are broken");
}

}  // namespace
}  // namespace muster
