#include "muster/roster/simulation/simulation.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::roster::simulation {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(thread_sanitizer) || __has_feature(address_sanitizer);
#else
constexpr bool kSanitized = false;
#endif
// A few seconds either way. `muster_roster_sim --schedules 100000` runs more.
constexpr uint64_t kSchedules = kSanitized ? 150 : 3000;

TEST(Simulation, PromisesHoldInThousandsOfSchedules) {
  Tally total;
  for (uint64_t seed = 1; seed <= kSchedules; ++seed) {
    const Outcome outcome = simulate(seed);
    ASSERT_TRUE(outcome.ok()) << "seed " << seed << " (" << outcome.scenario
                              << "): " << outcome.violation
                              << "\nsee it with: muster_roster_sim --seed " << seed << " --trace";
    total += outcome.tally;
  }
  RecordProperty("tally", total.text());
  if (kSanitized) return;
  // A simulation that never gets into trouble proves nothing.
  EXPECT_GT(total.rolled, 50) << total.text();
  EXPECT_GT(total.split, 50) << total.text();
  EXPECT_GT(total.redone, 1000) << total.text();
  EXPECT_GT(total.received, 1000) << total.text();
  EXPECT_GT(total.restored, 1000) << total.text();
  EXPECT_GT(total.outdated, 5) << total.text();
  EXPECT_GT(total.rejoined, 100) << total.text();
  EXPECT_GT(total.adopted, 100) << total.text();
  EXPECT_GT(total.retries, 100) << total.text();
  EXPECT_GT(total.quarantined, 10) << total.text();
  EXPECT_GT(total.hung, 100) << total.text();
  EXPECT_GT(total.lapsed, 100) << total.text();
  EXPECT_GT(total.left, 100) << total.text();
  EXPECT_GT(total.switched, 1000) << total.text();
  EXPECT_GT(total.lane_moves, 100) << total.text();
  EXPECT_GT(total.overflows, 1000) << total.text();
  EXPECT_GT(total.waiting_rosters, 100) << total.text();
  EXPECT_GT(total.standstills, 20) << total.text();
  EXPECT_GT(total.suspensions, 100) << total.text();
  EXPECT_GT(total.evaluations, 100) << total.text();
  EXPECT_GT(total.slow_restores, 20) << total.text();
  EXPECT_GT(total.vanished, 5) << total.text();
}

TEST(Simulation, ASeedIsARun) {
  for (const uint64_t seed : {3, 4, 5}) {
    std::ostringstream first;
    std::ostringstream second;
    EXPECT_EQ(simulate(seed, Plant::kNothing, &first).events,
              simulate(seed, Plant::kNothing, &second).events);
    EXPECT_EQ(first.str(), second.str());
    EXPECT_THAT(first.str(), testing::HasSubstr("all is well"));
  }
}

class Planted : public testing::TestWithParam<PlantName> {};

TEST_P(Planted, IsFoundWithinAThousandSchedules) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const Outcome outcome = simulate(seed, GetParam().plant);
    if (outcome.ok()) continue;
    RecordProperty("seed", std::to_string(seed));
    RecordProperty("violation", outcome.violation);
    return;
  }
  FAIL() << GetParam().meaning << ", and nobody noticed";
}

INSTANTIATE_TEST_SUITE_P(All, Planted, testing::ValuesIn(plants().begin() + 1, plants().end()),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace muster::roster::simulation
