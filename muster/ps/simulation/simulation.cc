#include "muster/ps/simulation/simulation.h"

#include <fmt/format.h>

#include "muster/ps/simulation/cluster.h"

namespace muster::ps::simulation {

Duration bound() { return std::chrono::seconds(8); }

Outcome simulate(uint64_t seed, Plant plant, std::ostream* trace, int servers,
                 std::optional<Clients> clients) {
  return Cluster(seed, plant, trace, servers, clients.value_or(clients_of(seed))).run();
}

const std::vector<ClientsName>& client_names() {
  static const std::vector<ClientsName> names = {
      {Clients::kUpdates, "updates", "each adds and commits at any shard at any time"},
      {Clients::kSteps, "steps", "they train step by step"},
      {Clients::kTasks, "tasks", "they train asynchronously"}};
  return names;
}

Clients clients_of(uint64_t seed) { return static_cast<Clients>(seed % 3); }

const std::vector<PlantName>& plants() {
  static const std::vector<PlantName> names = {
      {Plant::kNothing, "none", "as it is", std::nullopt},
      {Plant::kAnswerEarly, "answer-early", "a push is answered before followers have it",
       Clients::kUpdates},
      {Plant::kForgetNumbers, "forget-numbers", "a copy comes without the numbers of pushes",
       Clients::kUpdates},
      {Plant::kIgnoreEpochs, "ignore-epochs", "messages of another epoch are taken",
       Clients::kUpdates},
      {Plant::kNoLease, "no-lease", "a server that was removed lets clients read",
       Clients::kUpdates},
      {Plant::kHasty, "hasty", "a server is removed before its lease is over", Clients::kUpdates},
      {Plant::kSkipEpochs, "skip-epochs", "a server leaves out epochs that it missed",
       Clients::kUpdates},
      {Plant::kNewNumbers, "new-numbers", "a client repeats pushes under new numbers",
       Clients::kUpdates},
      {Plant::kReadyEarly, "ready-early", "a server is ready before it has its shards",
       Clients::kUpdates},
      {Plant::kAddAgain, "add-again", "a lane that a shard has is added again", Clients::kSteps},
      {Plant::kReadNow, "read-now", "rows are read as they are, not as they were", Clients::kSteps},
      {Plant::kVoidTickets, "void-tickets", "a group that was replaced can say that a task is done",
       Clients::kTasks},
      {Plant::kTellAgain, "tell-again", "places that a shard was told of are applied again",
       Clients::kTasks},
      {Plant::kNoChain, "no-chain",
       "a task is given out before the one that it follows has a place", Clients::kTasks},
      {Plant::kEvictCopies, "evict-copies", "a server evicts rows when it gets a copy of them",
       Clients::kSteps},
      {Plant::kMoveUp, "move-up", "when a server is gone, others of its host move up in the order",
       Clients::kUpdates},
      {Plant::kNoComplaints, "no-complaints", "a server does not say whom it cannot reach",
       Clients::kUpdates},
      {Plant::kOldEras, "old-eras", "pushes of an earlier era take effect", std::nullopt},
      {Plant::kLoadAgain, "load-again", "a second load of an era takes effect", std::nullopt},
      {Plant::kSameEra, "same-era", "all go back to a checkpoint and begin no era", std::nullopt},
      {Plant::kEarlySave, "early-save", "a save does not wait for the clock of its shard",
       std::nullopt},
      {Plant::kAnyEra, "any-era", "a save takes rows of another era", std::nullopt}};
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
  parted += other.parted;
  joins += other.joins;
  removals += other.removals;
  steps += other.steps;
  tasks += other.tasks;
  groups += other.groups;
  again += other.again;
  late += other.late;
  evicted += other.evicted;
  saves += other.saves;
  returns += other.returns;
  stale += other.stale;
  foreign += other.foreign;
  return *this;
}

std::string Tally::text() const {
  return fmt::format(
      "{} pushes answered, {} reads, {} epochs, {} copies; {} crashes, {} suspended, {} cuts and "
      "{} for ever, {} joined, {} removed alive; {} steps, {} tasks, {} groups of workers, {} "
      "lanes or tasks again, {} late pushes, {} rows evicted; {} checkpoints, {} returns to one, "
      "{} pushes of earlier eras, {} saves that found rows of a later era",
      pushes, reads, epochs, copies, crashes, pauses, cuts, parted, joins, removals, steps, tasks,
      groups, again, late, evicted, saves, returns, stale, foreign);
}

}  // namespace muster::ps::simulation
