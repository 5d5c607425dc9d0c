// Parameter servers under fire, in one process and in virtual time: servers that crash, are
// suspended, cut off, restarted and joined, clients that push and read, as a seed says; and a
// witness. The rules are the product's: ServerRegistry, ServerCore, ShardCopy, PushQueue,
// TableData. Clock and network are simulated.
//
// A server is hurt only if every shard has a complete copy elsewhere, so nothing may ever be lost.
// What is checked, for every seed:
// - each push that was answered is in the order of its shard exactly once, and so is each push of a
//   client before it; those of one client keep their order;
// - two copies never have different orders up to a place that somebody was told of;
// - who reads gets all that was answered, or read by anyone, before he asked;
// - no primary finds that it does not have its shard;
// - at the end all copies have the same rows, bit for bit, which are those that the order gives
//   when it is computed alone;
// - when faults stop, all pushes are answered within bound().
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "muster/base/clock.h"

namespace muster::ps::simulation {

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
};
struct PlantName {
  Plant plant;
  const char* name;
  const char* meaning;
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
  uint64_t joins = 0;
  uint64_t removals = 0;  // of servers that were only suspended or cut off
  Tally& operator+=(const Tally& other);
  std::string text() const;
};

struct Outcome {
  std::string violation;  // empty: none
  Tally tally;
  uint64_t events = 0;
  bool ok() const { return violation.empty(); }
};

// After the last fault, until every push is answered.
Duration bound();

// One run: a pure function of the seed. Everything that happens is written to `trace`, if given.
// `servers`: how many at first; 0: as the seed says.
Outcome simulate(uint64_t seed, Plant plant = Plant::kNothing, std::ostream* trace = nullptr,
                 int servers = 0);

}  // namespace muster::ps::simulation
