#include "muster/roster/job_options.h"

#include <gtest/gtest.h>

namespace muster::roster {
namespace {

using namespace std::chrono_literals;

TEST(JobOptions, DefaultsAreThoseOfTheJobFile) {
  const config::Job job;
  const Options made = options_of(job, "run", 0);
  const Options plain;
  EXPECT_EQ(made.job, "run");
  EXPECT_EQ(made.lanes, plain.lanes);
  EXPECT_EQ(made.min_workers, plain.min_workers);
  EXPECT_EQ(made.max_workers, plain.max_workers);
  EXPECT_EQ(made.gather, plain.gather);
  EXPECT_EQ(made.lease, plain.lease);
  EXPECT_EQ(made.heartbeat, plain.heartbeat);
  EXPECT_EQ(made.hang_timeout, plain.hang_timeout);
  EXPECT_TRUE(made.validate().ok());
}

TEST(JobOptions, LanesDoNotMoveIfTheyMayNotOrAreNotUsed) {
  config::Job job;
  EXPECT_EQ(options_of(job, "run", 0).rebalance_every, Options{}.rebalance_every);
  job.workers.move_lanes = false;
  EXPECT_GT(options_of(job, "run", 0).rebalance_every, 10000h);
  job = {};
  job.sync.strategy = "server";
  EXPECT_GT(options_of(job, "run", 0).rebalance_every, 10000h);
}

TEST(JobOptions, WhatTheJobSaysArrives) {
  config::Job job;
  job.lanes = 16;
  job.workers.min = 2;
  job.workers.max = 5;
  job.workers.lease = 0.5;
  job.workers.heartbeat = 0.1;
  job.workers.hang_timeout = 0;
  job.workers.gather = 1.5;
  job.numerics = "tolerant";
  const Options options = options_of(job, "run", 4);
  EXPECT_EQ(options.lanes, 16);
  EXPECT_EQ(options.min_workers, 2);
  EXPECT_EQ(options.max_workers, 5);
  EXPECT_EQ(options.expected, 4);
  EXPECT_EQ(options.lease, 500ms);
  EXPECT_EQ(options.heartbeat, 100ms);
  EXPECT_EQ(options.hang_timeout, 0ms);
  EXPECT_EQ(options.gather, 1500ms);
  EXPECT_TRUE(options.tolerant);
  EXPECT_FALSE(options_of(config::Job{}, "run", 4).tolerant);
}

TEST(JobOptions, AShortHangTimeoutNeedsMoreHeartbeats) {
  config::Job job;
  job.workers.hang_timeout = 0.5;
  const Options options = options_of(job, "run", 4);
  EXPECT_EQ(options.heartbeat, 125ms);
  EXPECT_TRUE(options.validate().ok());
}

}  // namespace
}  // namespace muster::roster
