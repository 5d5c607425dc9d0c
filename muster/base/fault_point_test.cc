#include "muster/base/fault_point.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include <gtest/gtest.h>

#include "muster/base/clock.h"
#include "muster/base/file_system.h"

namespace muster {
namespace {

// How a process ends that is aimed at with `aimed` and passes `passed`.
int end_of(bool armed, FaultPoint aimed, FaultPoint passed) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("MUSTER_FAULTS", armed ? "1" : "0", 1);  // NOLINT(concurrency-mt-unsafe): one thread
    arm_fault_points();
    if (armed) raise(fault_signal(aimed));
    fault_point(passed);
    _exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(FaultPoint, DiesThereAndNowhereElse) {
  EXPECT_EQ(end_of(true, FaultPoint::kForming, FaultPoint::kForming), -SIGKILL);
  EXPECT_EQ(end_of(true, FaultPoint::kForming, FaultPoint::kTransfer), 7);
  EXPECT_EQ(end_of(false, FaultPoint::kForming, FaultPoint::kForming), 7);
}

TEST(FaultPoint, HasNames) {
  for (int i = 1; i < kFaultPoints; ++i) {
    const auto point = static_cast<FaultPoint>(i);
    EXPECT_EQ(find_fault_point(fault_point_name(point)), point);
  }
  EXPECT_FALSE(find_fault_point("none"));
  EXPECT_FALSE(find_fault_point("lunch"));
}

// Milliseconds that the child needs for three writes, to files that it creates or appends to.
int64_t writing_takes(bool armed, bool create) {
  const SystemClock clock;
  const Moment begin = clock.now();
  const pid_t child = fork();
  if (child == 0) {
    setenv("MUSTER_FAULTS", armed ? "1" : "0", 1);  // NOLINT(concurrency-mt-unsafe): one thread
    arm_fault_points();
    if (armed) slow_disk(getpid(), 500, 1000);
    const auto files = posix_file_system();
    auto file = create ? files->create("/dev/null") : files->open_to_append("/dev/null");
    bool ok = file.ok();
    for (int i = 0; ok && i < 3; ++i) ok = (*file)->append("text").ok();
    _exit(ok ? 7 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  return std::chrono::floor<std::chrono::milliseconds>(clock.now() - begin).count();
}

TEST(SlowDisk, WaitsBeforeEachWriteUntilTheTotalIsReached) {
  const int64_t milliseconds = writing_takes(true, true);
  EXPECT_GE(milliseconds, 1000);
  EXPECT_LT(milliseconds, 1500) << "the third write does not wait";
}

TEST(SlowDisk, LogsAndUnarmedProcessesAreNotSlow) {
  EXPECT_LT(writing_takes(true, false), 500);
  EXPECT_LT(writing_takes(false, true), 500);
}

}  // namespace
}  // namespace muster
