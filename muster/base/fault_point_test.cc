#include "muster/base/fault_point.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace muster
