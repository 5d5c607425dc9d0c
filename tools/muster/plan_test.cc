#include "tools/muster/plan.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/muster/machines.h"

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

TEST(Plan, MuonHasAStrategyOfItsOwn) {
  auto job = mlp();
  const auto count = [&](const std::string& strategy) {
    return std::ranges::count_if(settings_for(job, 4), [&](const Setting& setting) {
      return setting.job.sync.strategy == strategy;
    });
  };
  EXPECT_EQ(count("muloco"), 0);
  const auto diloco = count("diloco");
  job.optimizer.kind = "muon";
  job.optimizer.momentum = 0.95;
  EXPECT_EQ(count("muloco"), diloco);
  EXPECT_EQ(count("diloco"), 0);
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

TEST(Machines, AMeasurementIsReadFromMetrics) {
  const std::string metrics = R"({"step":0,"links":{"rate":1e6,"delay":0.002}}
{"step":1,"seconds":9.0,"waited":1.0}
{"step":2,"seconds":9.0,"waited":1.0}
{"step":3,"seconds":1.5,"waited":1.0}
{"step":4,"seconds":1.6,"waited":1.0}
{"step":5,"seconds":1.7,"waited":1.0}
)";
  const auto machines = read_measurement(metrics, 3);
  ASSERT_TRUE(machines.ok());
  EXPECT_EQ(machines->hosts, 3);
  EXPECT_EQ(machines->network.delay, 0.002);
  // Of the wire: more than what is sent.
  EXPECT_GT(machines->network.rate, 1e6);
  EXPECT_LT(machines->network.rate, 1.5e6);
  EXPECT_NEAR(machines->compute, 0.6, 1e-9);
  // Too few steps, or no links.
  EXPECT_FALSE(read_measurement(metrics.substr(0, metrics.find("{\"step\":4")), 3).ok());
  EXPECT_FALSE(read_measurement(metrics.substr(metrics.find("{\"step\":1")), 3).ok());
}

}  // namespace
}  // namespace muster::cli
