#include "muster/ps/net/job_setup.h"

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

config::Job job_with_rows() {
  config::Job job;
  job.lanes = 8;
  job.tables.width = 4;
  job.tables.shards = 10;
  job.tables.admit_after = 3;
  job.tables.admit_probability = 0.5;
  job.tables.evict_after = 100;
  job.tables.most_rows = 41;
  return job;
}

TEST(JobSetup, RowsComeAndGoAsTheJobSays) {
  const auto setup = setup_of(job_with_rows());
  ASSERT_EQ(setup.tables.size(), 1U);
  EXPECT_TRUE(check(setup).ok());
  const auto& rows = setup.tables[0];
  EXPECT_EQ(rows.admission.sights, 3);
  EXPECT_EQ(rows.admission.probability, 0.5);
  EXPECT_EQ(rows.eviction.age, 100U);
  EXPECT_EQ(rows.eviction.most, 5U) << "a tenth, rounded up";
  EXPECT_EQ(rows.eviction.every, kEvictEvery);
}

TEST(JobSetup, AnAsynchronousShardCountsUpdates) {
  auto job = job_with_rows();
  job.sync.strategy = "server";
  job.sync.mode = "softsync";
  job.sync.pushes = 2;
  auto setup = setup_of(job);
  ASSERT_EQ(setup.tables.size(), 2U);
  EXPECT_TRUE(check(setup).ok());
  EXPECT_EQ(clock_after(job, 3), 12);
  EXPECT_EQ(setup.tables[0].eviction.age, 400U);
  EXPECT_EQ(setup.tables[0].eviction.every, 4 * kEvictEvery);
  const auto& weights = setup.tables[weight_table(job)];
  EXPECT_FALSE(weights.eviction.any()) << "the model's own parameters stay";
  EXPECT_EQ(weights.admission.sights, 1);
  EXPECT_EQ(weights.admission.probability, 1);
  job.tables.evict_after = 1'000'000'000;
  job.lanes = 1000;
  setup = setup_of(job);
  EXPECT_EQ(setup.tables[0].eviction.age, UINT32_MAX);
}

}  // namespace
}  // namespace muster::ps
