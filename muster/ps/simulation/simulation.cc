#include "muster/ps/simulation/simulation.h"

#include <fmt/format.h>

#include "muster/ps/simulation/cluster.h"

namespace muster::ps::simulation {

Duration bound() { return std::chrono::seconds(8); }

Outcome simulate(uint64_t seed, Plant plant, std::ostream* trace, int servers) {
  return Cluster(seed, plant, trace, servers).run();
}

const std::vector<PlantName>& plants() {
  static const std::vector<PlantName> names = {
      {Plant::kNothing, "none", "as it is"},
      {Plant::kAnswerEarly, "answer-early", "a push is answered before followers have it"},
      {Plant::kForgetNumbers, "forget-numbers", "a copy comes without the numbers of pushes"},
      {Plant::kIgnoreEpochs, "ignore-epochs", "messages of another epoch are taken"},
      {Plant::kNoLease, "no-lease", "a server that was removed lets clients read"},
      {Plant::kHasty, "hasty", "a server is removed before its lease is over"},
      {Plant::kSkipEpochs, "skip-epochs", "a server leaves out epochs that it missed"},
      {Plant::kNewNumbers, "new-numbers", "a client repeats pushes under new numbers"},
      {Plant::kReadyEarly, "ready-early", "a server is ready before it has its shards"}};
  return names;
}

Tally& Tally::operator+=(const Tally& other) {
  pushes += other.pushes;
  reads += other.reads;
  epochs += other.epochs;
  copies += other.copies;
  crashes += other.crashes;
  pauses += other.pauses;
  cuts += other.cuts;
  joins += other.joins;
  removals += other.removals;
  return *this;
}

std::string Tally::text() const {
  return fmt::format(
      "{} pushes answered, {} reads, {} epochs, {} copies; {} crashes, {} suspended, {} cuts, {} "
      "joined, {} removed alive",
      pushes, reads, epochs, copies, crashes, pauses, cuts, joins, removals);
}

}  // namespace muster::ps::simulation
