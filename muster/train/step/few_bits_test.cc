#include "muster/train/step/few_bits.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "muster/comm/local_group.h"

namespace muster::train {
namespace {

constexpr std::array kLanes = {0, 1, 2, 3};

config::Job job_with(int64_t bits, const std::string& rotation) {
  config::Job job;
  job.lanes = 4;
  job.sync.bits = bits;
  job.sync.lane_groups = 2;
  job.sync.rotation = rotation;
  return job;
}

struct Step {
  explicit Step(const config::Job& of)
      : job(of),
        layout(std::vector<size_t>{5000, 300}),
        groups(layout, 4, bucket_bytes(of.sync.bucket, of.sync.bits)),
        few(job, layout, groups, layout.tensors(), host_memory()),
        group(comm::solo_group("alone")) {
    groups.set_groups(2);
  }

  // All elements of a lane's gradient are this.
  void run(const std::vector<float>& lanes) {
    const std::vector<uint8_t> exponents(layout.blocks().size(), 254 - exact::kSpareBits);
    groups.begin(GradientSum::Mode::kExact, exponents, kLanes);
    few.begin(1);
    for (const int lane : kLanes) {
      const std::vector<float> g(5000, lanes[static_cast<size_t>(lane)]);
      groups.add(lane, 0, g.data());
      groups.add(lane, 1, g.data());
    }
    groups.flush();
    for (const size_t bucket : groups.exchange_order()) {
      ASSERT_TRUE(few.exchange(bucket, *group, {}).ok());
    }
  }

  config::Job job;
  exact::BlockLayout layout;
  GradientSum groups;
  FewBits few;
  std::unique_ptr<comm::Group> group;
};

TEST(FewBits, EachGroupOfLanesRoundsItsSum) {
  Step step(job_with(8, "none"));
  step.run({0x1p120f, 0x1p119f, 0x1p120f, 0x1p119f});
  std::vector<float> scratch(exact::kBlockSize);
  // Each group has 1.5 * 2^120, which 8 bits hold exactly.
  for (size_t b = 0; b < step.layout.blocks().size(); ++b) {
    for (const float v : step.few.sum().read(b, scratch)) ASSERT_EQ(v, 0x1.8p121f);
  }
  EXPECT_EQ(step.few.not_finite(), -1);
}

// Sums of gradients that are finite, but hardly: the step is not finite, and nothing else happens.
TEST(FewBits, WhatIsTooLargeForAFloatIsNotFinite) {
  for (const std::string rotation : {"none", "hadamard"}) {
    Step step(job_with(4, rotation));
    step.run({0x1.8p127f, 0x1.8p127f, 0, 0});
    EXPECT_EQ(step.few.not_finite(), 0);
    step.run({1, 1, 1, 1});
    EXPECT_EQ(step.few.not_finite(), -1);
  }
}

}  // namespace
}  // namespace muster::train
