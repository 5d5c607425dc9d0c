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
                               total.copies, total.reads}) {
    EXPECT_GT(count, 100U) << total.text();
  }
}

TEST(PsSimulation, ManyServers) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    const auto outcome = simulate(seed, Plant::kNothing, nullptr, 64);
    ASSERT_TRUE(outcome.ok()) << "seed " << seed << ": " << outcome.violation;
  }
}

TEST(PsSimulation, IsAFunctionOfItsSeed) {
  const auto a = simulate(5);
  const auto b = simulate(5);
  EXPECT_EQ(a.events, b.events);
  EXPECT_EQ(a.tally.text(), b.tally.text());
}

TEST(PsSimulation, FindsPlantedMistakes) {
  for (const auto& plant : plants()) {
    // Epochs that were skipped matter in one schedule of a thousand: docs/servers.md.
    if (plant.plant == Plant::kNothing || plant.plant == Plant::kSkipEpochs) continue;
    bool found = false;
    for (uint64_t seed = 1; seed <= 200 && !found; ++seed) {
      found = !simulate(seed, plant.plant).ok();
    }
    EXPECT_TRUE(found) << plant.name;
  }
}

}  // namespace
}  // namespace muster::ps::simulation
