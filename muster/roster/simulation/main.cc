// muster_roster_sim: runs schedules of the simulation, or one of them with a trace.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "muster/base/text.h"
#include "muster/roster/simulation/simulation.h"

namespace {

namespace sim = muster::roster::simulation;

struct Arguments {
  uint64_t seed = 1;
  uint64_t schedules = 1;
  bool trace = false;
  std::string plant = "none";
};

int run(const Arguments& arguments, sim::Plant plant) {
  const auto begin = std::chrono::steady_clock::now();
  sim::Tally total;
  uint64_t events = 0;
  double longest = 0;
  uint64_t longest_seed = 0;
  for (uint64_t i = 0; i < arguments.schedules; ++i) {
    const uint64_t seed = arguments.seed + i;
    const sim::Outcome outcome = sim::simulate(seed, plant, arguments.trace ? &std::cout : nullptr);
    if (!outcome.ok()) {
      fmt::print("seed {} ({}): {}\n", seed, outcome.scenario, outcome.violation);
      fmt::print("{} schedules were run; see what happened with --seed {} --trace{}\n", i + 1, seed,
                 arguments.plant == "none" ? "" : " --plant " + arguments.plant);
      return 1;
    }
    total += outcome.tally;
    events += outcome.events;
    if (muster::seconds(outcome.recovery) > longest) {
      longest = muster::seconds(outcome.recovery);
      longest_seed = seed;
    }
  }
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{} schedules without a violation in {:.1f} s ({:.0f} a second, {} events)\n",
             muster::with_commas(arguments.schedules), took,
             static_cast<double>(arguments.schedules) / took, muster::with_commas(events));
  fmt::print("{}\n", total.text());
  fmt::print("longest way back after the last fault: {:.2f} s of virtual time (seed {})\n", longest,
             longest_seed);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Runs the roster's protocol against seeded faults, in virtual time.");
  app.add_option("--seed", arguments.seed, "the first schedule");
  app.add_option("--schedules", arguments.schedules, "how many, from that seed on");
  app.add_flag("--trace", arguments.trace, "print what happens");
  std::string names;
  for (const sim::PlantName& plant : sim::plants()) {
    names += fmt::format("\n  {}: {}", plant.name, plant.meaning);
  }
  app.add_option("--plant", arguments.plant, "build in a mistake, to see it found:" + names);
  CLI11_PARSE(app, argc, argv);
  for (const sim::PlantName& plant : sim::plants()) {
    if (arguments.plant == plant.name) return run(arguments, plant.plant);
  }
  fmt::print(stderr, "muster_roster_sim: there is no plant '{}'\n", arguments.plant);
  return 2;
}
