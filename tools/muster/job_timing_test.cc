#include "tools/muster/job_timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

config::Job job(int64_t lanes, int64_t batch) {
  config::Job job;
  job.lanes = lanes;
  job.batch = batch;
  return job;
}

TEST(Arrangements, TheJobsOwnIsFirstAndNoneTwice) {
  EXPECT_THAT(arrangements(job(8, 128), 4),
              ElementsAre(Arrangement{8, 1}, Arrangement{4, 1}, Arrangement{1, 4}));
  EXPECT_THAT(arrangements(job(4, 128), 4), ElementsAre(Arrangement{4, 1}, Arrangement{1, 4}));
  EXPECT_THAT(arrangements(job(1, 128), 1), ElementsAre(Arrangement{1, 1}));
}

TEST(Arrangements, ALaneHasAtLeastOneSample) {
  EXPECT_THAT(arrangements(job(2, 3), 4), ElementsAre(Arrangement{2, 1}, Arrangement{1, 4}));
}

TEST(AdviseLanes, SpeaksOnlyOfWhatIsClearlyFaster) {
  EXPECT_EQ(advise_lanes({}), std::nullopt);
  EXPECT_EQ(advise_lanes({{{2, 1}, 0.030}, {{1, 2}, 0.029}}), std::nullopt);
  EXPECT_EQ(advise_lanes({{{2, 1}, 0.030}, {{1, 2}, 0.040}}), std::nullopt);
  const auto advice = advise_lanes({{{8, 1}, 0.045}, {{2, 1}, 0.032}, {{1, 2}, 0.026}});
  ASSERT_TRUE(advice.has_value());
  EXPECT_THAT(*advice, HasSubstr("lanes: 1 and threads_per_lane: 2"));
  EXPECT_THAT(*advice, HasSubstr("26.0 ms here instead of 45.0 ms"));
}

TEST(MedianStep, LeavesOutTheFirstSteps) {
  std::string metrics;
  double time = 0;
  for (int step = 1; step <= 20; ++step) {
    time += step <= 6 ? 1 : 0.1;
    metrics += fmt::format("{{\"step\": {}, \"time\": {:.3f}}}\n", step, time);
  }
  EXPECT_NEAR(median_step(metrics).value_or(-1), 0.1, 1e-9);
  EXPECT_EQ(median_step("{\"step\": 1, \"time\": 1}\n"), std::nullopt);
  EXPECT_EQ(median_step("nonsense\n{}\n"), std::nullopt);
}

}  // namespace
}  // namespace muster::cli
