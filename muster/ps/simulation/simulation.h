// Parameter servers under fire, in one process and in virtual time: servers that crash, are
// suspended, cut off, restarted and joined, clients that push and read, as a seed says; and a
// witness. The rules are the product's: ServerRegistry, ServerCore, ShardCopy, PushQueue,
// Questions, TableData, and so StepSums, StagedPushes and TaskOrder, and roster::agree. Clock and
// network are simulated, and so are the workers of a training: what they ask and push, and in which
// order, is written down a second time, after train/rows and train/step (step_client.h,
// task_client.h).
//
// A server is hurt only if every shard has a complete copy elsewhere, so nothing may ever be lost.
// What is checked, for every seed:
// - each push that was answered is in the order of its shard exactly once, and so is each push of a
//   client before it; those of one client keep their order;
// - two copies never have different orders up to a place that somebody was told of;
// - who reads gets all that was answered, or read by anyone, before he asked;
// - no primary finds that it does not have its shard;
// - at the end, if no server is gone, the two copies of a shard are on different hosts;
// - at the end all copies have the same rows, bit for bit, which are those that the order gives
//   when it is computed alone;
// - at the end, and in each checkpoint, all shards are those of one position and of one history:
//   that of the checkpoint from which its era began, and what was computed in that era. Gradients
//   are others in each era, so what is left of another one shows;
// - when faults stop, all pushes are answered, and a training ends, within bound().
// Of workers that train step by step, while they are lost, suspended and replaced:
// - each step reads exactly what the steps before it gave;
// - at the end the clock of every shard is the number of steps, and its rows are those of tables in
//   one place that got each lane of each step once.
// Of workers that train asynchronously:
// - each task of each round has exactly one place, and with a bound of staleness no task was given
//   too early;
// - at the end all shards have all places, and their rows are those of tables in one place that
//   compute the record again: each task from what it read, in the order of places.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "muster/base/clock.h"

namespace muster::ps::simulation {

// What the clients of a schedule do.
enum class Clients : uint8_t {
  kUpdates,  // each adds and commits (kAdd, kCommit) at any shard at any time
  kSteps,    // they train step by step
  kTasks,    // they train asynchronously, with an order of tasks
};
struct ClientsName {
  Clients clients;
  const char* name;
  const char* meaning;
};
const std::vector<ClientsName>& client_names();
// A third of all schedules each.
Clients clients_of(uint64_t seed);

// Mistakes that can be built in on purpose, to see that they are found.
enum class Plant : uint8_t {
  kNothing,
  kAnswerEarly,    // a push is answered before followers have it
  kForgetNumbers,  // a copy comes without the numbers of the clients' pushes
  kIgnoreEpochs,   // messages of another epoch are taken for ones of this
  kNoLease,        // a server that was removed lets clients read
  kHasty,          // a server is removed before its lease is over
  kSkipEpochs,     // a server that missed epochs goes on as if there had been none
  kNewNumbers,     // a client repeats pushes under new numbers
  kReadyEarly,     // a server that joins is ready before it has its shards
  kAddAgain,       // a lane that a shard has is added again
  kReadNow,        // rows are read as they are, not as they were
  kVoidTickets,    // a group that was replaced can say that a task is done
  kTellAgain,      // places that a shard was told of are applied again
  kNoChain,        // a task is given out before the one that it follows has a place
  kEvictCopies,    // a server evicts rows when it gets a copy, not when the clock says so
  kMoveUp,         // when a server is gone, others of its host move up in the order
  kNoComplaints,   // a server does not say whom it cannot reach
  kOldEras,        // pushes of an earlier era take effect
  kLoadAgain,      // a second load of an era takes effect
  kSameEra,        // all go back to a checkpoint and begin no era
  kEarlySave,      // a save does not wait for the clock of its shard
  kAnyEra,         // a save takes rows of another era
};
struct PlantName {
  Plant plant;
  const char* name;
  const char* meaning;
  std::optional<Clients> clients;  // of whom it is seen; none: of any
};
const std::vector<PlantName>& plants();

struct Tally {
  uint64_t pushes = 0;  // answered
  uint64_t reads = 0;
  uint64_t epochs = 0;
  uint64_t copies = 0;
  uint64_t crashes = 0;
  uint64_t pauses = 0;
  uint64_t cuts = 0;
  uint64_t parted = 0;  // cuts between two servers that do not heal
  uint64_t joins = 0;
  uint64_t removals = 0;  // of servers that were only suspended or cut off
  // Of trainings.
  uint64_t steps = 0;
  uint64_t tasks = 0;
  uint64_t groups = 0;
  uint64_t again = 0;    // lanes that were pushed again, tasks that were given again
  uint64_t late = 0;     // pushes of workers whose group had been replaced
  uint64_t evicted = 0;  // rows
  uint64_t saves = 0;    // checkpoints
  uint64_t returns = 0;  // to one of them
  uint64_t loads = 0;    // of these returns, those whose checkpoint a worker loaded completely
  uint64_t stale = 0;    // pushes of earlier eras
  uint64_t foreign = 0;  // saves of an earlier era that found rows of a later one
  Tally& operator+=(const Tally& other);
  std::string text() const;
};

struct Outcome {
  std::string violation;  // empty: none
  Tally tally;
  uint64_t events = 0;
  bool ok() const { return violation.empty(); }
};

// After the last fault, until every push is answered and a training has ended.
Duration bound();

// One run: a pure function of the seed. Everything that happens is written to `trace`, if given.
// `servers`: how many at first; 0: as the seed says. `clients`: none: clients_of(seed).
Outcome simulate(uint64_t seed, Plant plant = Plant::kNothing, std::ostream* trace = nullptr,
                 int servers = 0, std::optional<Clients> clients = std::nullopt);

}  // namespace muster::ps::simulation
