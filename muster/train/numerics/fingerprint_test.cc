#include "muster/train/numerics/fingerprint.h"

#include <thread>

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace muster::train {
namespace {

TEST(Fingerprint, IsTheSameEveryTimeAndOnEveryThread) {
  const auto first = take_fingerprint();
  EXPECT_GE(first.kernels.size(), 7);
  EXPECT_EQ(take_fingerprint().combined(), first.combined());
  Hash128 elsewhere;
  std::thread([&] { elsewhere = take_fingerprint().combined(); }).join();
  EXPECT_EQ(elsewhere, first.combined());
}

TEST(Fingerprint, LeavesTheNumberOfThreadsAsItWas) {
  at::set_num_threads(2);
  (void)take_fingerprint();
  EXPECT_EQ(at::get_num_threads(), 2);
  at::set_num_threads(1);
}

}  // namespace
}  // namespace muster::train
