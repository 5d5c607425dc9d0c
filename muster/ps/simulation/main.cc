// muster_ps_sim: runs schedules of the simulation, or one of them with a trace.
#include <chrono>
#include <iostream>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "muster/base/text.h"
#include "muster/ps/simulation/simulation.h"

namespace {

namespace sim = muster::ps::simulation;

struct Arguments {
  uint64_t seed = 1;
  uint64_t schedules = 1;
  bool trace = false;
  int servers = 0;
  std::string clients;
  std::string plant = "none";
};

int run(const Arguments& arguments, sim::Plant plant, std::optional<sim::Clients> clients) {
  const auto begin = std::chrono::steady_clock::now();
  sim::Tally total;
  uint64_t events = 0;
  for (uint64_t i = 0; i < arguments.schedules; ++i) {
    const uint64_t seed = arguments.seed + i;
    const auto outcome = sim::simulate(seed, plant, arguments.trace ? &std::cout : nullptr,
                                       arguments.servers, clients);
    if (!outcome.ok()) {
      fmt::print("seed {}: {}\n", seed, outcome.violation);
      fmt::print("{} schedules were run; see what happened with --seed {} --trace{}{}\n", i + 1,
                 seed, arguments.plant == "none" ? "" : " --plant " + arguments.plant,
                 arguments.clients.empty() ? "" : " --clients " + arguments.clients);
      return 1;
    }
    total += outcome.tally;
    events += outcome.events;
  }
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{} schedules without a violation in {:.1f} s ({:.0f} a second, {} events)\n",
             muster::with_commas(arguments.schedules), took,
             static_cast<double>(arguments.schedules) / took, muster::with_commas(events));
  fmt::print("{}\n", total.text());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Runs the protocol of parameter servers against seeded faults, in virtual time.");
  app.add_option("--seed", arguments.seed, "the first schedule");
  app.add_option("--schedules", arguments.schedules, "how many, from that seed on");
  app.add_flag("--trace", arguments.trace, "print what happens");
  app.add_option("--servers", arguments.servers, "how many at first; 0: as the seed says");
  std::string kinds;
  for (const auto& clients : sim::client_names()) {
    kinds += fmt::format("\n  {}: {}", clients.name, clients.meaning);
  }
  app.add_option("--clients", arguments.clients,
                 "what they do; not given: as the seed says, or as a plant needs it:" + kinds);
  std::string names;
  for (const auto& plant : sim::plants()) {
    names += fmt::format("\n  {}: {}", plant.name, plant.meaning);
  }
  app.add_option("--plant", arguments.plant, "build in a mistake, to see it found:" + names);
  CLI11_PARSE(app, argc, argv);
  std::optional<sim::Clients> clients;
  for (const auto& kind : sim::client_names()) {
    if (arguments.clients == kind.name) clients = kind.clients;
  }
  if (!clients && !arguments.clients.empty()) {
    fmt::print(stderr, "muster_ps_sim: there are no clients '{}'\n", arguments.clients);
    return 2;
  }
  for (const auto& plant : sim::plants()) {
    if (arguments.plant != plant.name) continue;
    return run(arguments, plant.plant, clients ? clients : plant.clients);
  }
  fmt::print(stderr, "muster_ps_sim: there is no plant '{}'\n", arguments.plant);
  return 2;
}
