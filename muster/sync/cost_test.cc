// Against what was measured at the interface of a host: docs/strategies.md.
#include "muster/sync/cost.h"

#include <string>

#include <gtest/gtest.h>

namespace muster::sync {
namespace {

struct Options {
  std::string strategy = "lockstep";
  int64_t bits = 32;
  std::string rotation = "none";
  int64_t period = 16;
  int64_t rounds = 8;
};

// examples/mlp-fashion.yaml on four hosts.
Cost mlp(const Options& sync, double rate = 12.5e6) {
  config::Job job;
  job.lanes = 4;
  job.sync.strategy = sync.strategy;
  job.sync.bits = sync.bits;
  job.sync.rotation = sync.rotation;
  job.sync.period = sync.period;
  job.sync.rounds = sync.rounds;
  return cost_of(job, {.parameters = 5'824'522, .states = 1}, 4, {.rate = rate, .delay = 1e-3},
                 0.09);
}

constexpr double kFast = 125e6;  // too fast for Rice codes

void expect_bytes(const Options& sync, double measured, double off, double rate = 12.5e6) {
  EXPECT_NEAR(mlp(sync, rate).bytes / measured, 1, off)
      << sync.strategy << ", " << sync.bits << " bits";
}

TEST(Cost, BytesAreNearWhatWasMeasured) {
  expect_bytes({}, 36'975e3, 0.02);
  expect_bytes({.bits = 4, .rotation = "hadamard"}, 4'863e3, 0.05, kFast);
  expect_bytes({.bits = 4, .rotation = "hadamard"}, 3'645e3, 0.06);
  expect_bytes({.bits = 2, .rotation = "hadamard"}, 3'112e3, 0.15, kFast);
  expect_bytes({.strategy = "average", .period = 48}, 771e3, 0.02);
  const Options diloco = {.strategy = "diloco", .bits = 4, .rotation = "hadamard", .period = 48};
  expect_bytes(diloco, 103e3, 0.02, kFast);
  expect_bytes(diloco, 80.4e3, 0.05);
  expect_bytes({.strategy = "sparseloco", .period = 30, .rounds = 50}, 23.7e3, 0.1);
  expect_bytes({.strategy = "sparseloco", .period = 30, .rounds = 20}, 42.0e3, 0.1);
  expect_bytes({.strategy = "sparseloco", .period = 30, .rounds = 1}, 611e3, 0.05);
}

TEST(Cost, ACommitIsAtStake) {
  EXPECT_EQ(mlp({}).at_stake, 1);
  EXPECT_EQ(mlp({.strategy = "diloco", .period = 20}).at_stake, 20);
  const auto sparse = mlp({.strategy = "sparseloco", .period = 15, .rounds = 10});
  EXPECT_EQ(sparse.at_stake, 150);
  EXPECT_GT(sparse.commit_bytes, 0);
  EXPECT_LT(sparse.commit_bytes, sparse.bytes);
  // More rounds in a commit: less traffic, more at stake.
  EXPECT_LT(mlp({.strategy = "sparseloco", .period = 15, .rounds = 100}).bytes, sparse.bytes);
}

TEST(Cost, AFasterNetworkIsNeverSlower) {
  for (const char* strategy : {"lockstep", "average", "diloco", "easgd", "gossip", "sparseloco",
                               "desloc", "sparta", "local-then-lockstep"}) {
    double last = 1e9;
    for (const double rate : {1e6, 1e7, 1e8, 1e9}) {
      const double step = mlp({.strategy = strategy}, rate).step_seconds;
      EXPECT_LE(step, last) << strategy;
      EXPECT_GE(step, 0.09) << strategy;
      last = step;
    }
  }
}

TEST(Cost, ReplicasNeedMoreMemory) {
  const double lockstep = mlp({}).memory;
  EXPECT_EQ(lockstep, 4 * 5'824'522.0 * 3);  // weights, momentum, sum
  EXPECT_GT(mlp({.strategy = "diloco"}).memory, lockstep);
  EXPECT_GT(mlp({.strategy = "gossip"}).memory, mlp({.strategy = "sparseloco"}).memory);
}

}  // namespace
}  // namespace muster::sync
