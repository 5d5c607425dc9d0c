#include "muster/ps/simulation/simulation.h"

#include <gtest/gtest.h>

namespace muster::ps::simulation {
namespace {

TEST(PsSimulation, SchedulesHoldEveryPromise) {
  Tally total;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const auto outcome = simulate(seed);
    ASSERT_TRUE(outcome.ok()) << "seed " << seed << ": " << outcome.violation;
    total += outcome.tally;
  }
  // Everything happened.
  for (const uint64_t count : {total.crashes, total.pauses, total.cuts, total.joins, total.removals,
                               total.copies, total.reads, total.steps, total.tasks, total.groups,
                               total.again, total.late, total.evicted, total.saves, total.stale}) {
    EXPECT_GT(count, 100U) << total.text();
  }
  for (const uint64_t count : {total.parted, total.returns}) {
    EXPECT_GT(count, 20U) << total.text();
  }
}

TEST(PsSimulation, ManyServers) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const auto outcome = simulate(seed, Plant::kNothing, nullptr, 64);
    ASSERT_TRUE(outcome.ok()) << "seed " << seed << ": " << outcome.violation;
  }
}

TEST(PsSimulation, IsAFunctionOfItsSeed) {
  for (uint64_t seed = 3; seed <= 5; ++seed) {
    const auto a = simulate(seed);
    const auto b = simulate(seed);
    EXPECT_EQ(a.events, b.events);
    EXPECT_EQ(a.tally.text(), b.tally.text());
  }
}

TEST(PsSimulation, ThreeSchedulesInARowHaveAllKindsOfClients) {
  EXPECT_EQ(clients_of(3), Clients::kUpdates);
  EXPECT_EQ(clients_of(4), Clients::kSteps);
  EXPECT_EQ(clients_of(5), Clients::kTasks);
}

TEST(PsSimulation, TrainingsMakeProgress) {
  const auto steps = simulate(1, Plant::kNothing, nullptr, 0, Clients::kSteps);
  EXPECT_TRUE(steps.ok()) << steps.violation;
  EXPECT_GT(steps.tally.steps, 5U) << steps.tally.text();
  EXPECT_EQ(steps.tally.tasks, 0U);
  const auto tasks = simulate(1, Plant::kNothing, nullptr, 0, Clients::kTasks);
  EXPECT_TRUE(tasks.ok()) << tasks.violation;
  EXPECT_GT(tasks.tally.tasks, 5U) << tasks.tally.text();
  EXPECT_EQ(tasks.tally.steps, 0U);
}

TEST(PsSimulation, FindsPlantedMistakes) {
  for (const auto& plant : plants()) {
    // These three matter too rarely: docs/servers.md.
    if (plant.plant == Plant::kSkipEpochs || plant.plant == Plant::kLoadAgain) continue;
    if (plant.plant == Plant::kAnyEra || plant.plant == Plant::kNothing) continue;
    bool found = false;
    for (uint64_t seed = 1; seed <= 200 && !found; ++seed) {
      found = !simulate(seed, plant.plant, nullptr, 0, plant.clients).ok();
    }
    EXPECT_TRUE(found) << plant.name;
  }
}

}  // namespace
}  // namespace muster::ps::simulation
