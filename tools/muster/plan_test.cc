#include "tools/muster/plan.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

config::Job mlp() {
  config::Job job;
  job.model.zoo = "lenet";
  job.data.train.format = "idx";
  job.data.train.images = "/i";
  job.data.train.labels = "/l";
  job.data.test = job.data.train;
  job.passes = 1;
  job.batch = 256;
  job.lanes = 8;
  return job;
}

std::vector<Prediction> predict(const config::Job& job, int hosts, double rate, double compute) {
  std::vector<Prediction> all;
  for (auto& setting : settings_for(job, hosts)) {
    const auto cost = sync::cost_of(setting.job, {.parameters = 5.8e6, .states = 1}, hosts,
                                    {.rate = rate, .delay = 1e-4}, compute);
    all.push_back({std::move(setting), cost});
  }
  return all;
}

TEST(Plan, TheFirstSettingIsTheJobsOwn) {
  auto job = mlp();
  EXPECT_EQ(settings_for(job, 4)[0].job, job);
  EXPECT_TRUE(settings_for(job, 4)[0].sync.empty());
  // Another one's second is plain lockstep.
  job.sync.strategy = "diloco";
  EXPECT_EQ(settings_for(job, 4)[0].job, job);
  EXPECT_EQ(settings_for(job, 4)[1].job.sync, config::SyncOptions{});
}

TEST(Plan, ASettingIsWhatAJobFileSays) {
  auto job = mlp();
  job.sync.bucket = 4096;
  std::vector<std::string> all;
  for (const auto& setting : settings_for(job, 4)) all.push_back(setting.sync);
  EXPECT_THAT(all, testing::Contains("{ strategy: lockstep, bits: 4, rotation: hadamard, "
                                     "bucket: 4096 }"));
  EXPECT_THAT(all, testing::Contains("{ strategy: sparseloco, bucket: 4096, replicas: 4, "
                                     "period: 15, rounds: 100 }"));
  EXPECT_THAT(all, testing::Contains("{ strategy: topk, bucket: 4096, replicas: 4, "
                                     "rounds: 100 }"));
}

TEST(Plan, ReplicasAreDealtOutToAllHosts) {
  const auto replicas = [](int64_t lanes, int hosts) {
    auto job = mlp();
    job.lanes = lanes;
    return settings_for(job, hosts).back().job.sync.replicas;
  };
  EXPECT_EQ(replicas(8, 1), 1);
  EXPECT_EQ(replicas(8, 2), 2);
  EXPECT_EQ(replicas(8, 3), 4);
  EXPECT_EQ(replicas(8, 1000), 8);
  EXPECT_EQ(replicas(9, 4), 9);
}

TEST(Plan, ATrialHasTheShareOfOneWorker) {
  const auto share = share_of(mlp(), 4);
  EXPECT_EQ(share.lanes, 2);
  EXPECT_EQ(share.batch, 64);
  EXPECT_EQ(share_of(mlp(), 100).lanes, 1);
  EXPECT_EQ(share_of(mlp(), 100).batch, 32);
}

TEST(Plan, AFastNetworkNeedsNothingElse) {
  const auto predictions = predict(mlp(), 4, 1.25e9, 0.5);
  EXPECT_EQ(recommended(predictions), 0u);
  EXPECT_THAT(reason_for(predictions, 0, 0.5), testing::HasSubstr("nothing else is 10 % faster"));
}

TEST(Plan, TheSlowerTheNetworkTheFartherFromLockstep) {
  size_t last = 0;
  for (const double rate : {1.25e9, 125e6, 12.5e6, 1.25e6}) {
    const size_t choice = recommended(predict(mlp(), 4, rate, 0.09));
    EXPECT_GE(choice, last) << rate;
    last = choice;
  }
  const auto slow = predict(mlp(), 4, 1.25e6, 0.09);
  EXPECT_EQ(slow[last].setting.job.sync.strategy, "sparseloco");
  EXPECT_THAT(reason_for(slow, last, 0.09), testing::HasSubstr("another job"));
}

TEST(Plan, OneHostHasNoNetwork) {
  for (const auto& prediction : predict(mlp(), 1, 125e6, 0.09)) {
    EXPECT_EQ(prediction.cost.bytes, 0);
    EXPECT_EQ(prediction.cost.step_seconds, 0.09);
  }
}

}  // namespace
}  // namespace muster::cli
