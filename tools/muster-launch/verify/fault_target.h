// Whom a fault of `muster verify` hits, and when within a step. Pure functions: what they say
// follows from the fault and from who is there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "muster/base/clock.h"
#include "muster/launch/fault_plan.h"

namespace muster::cli {

// A member of the job that a fault may hit.
struct Target {
  std::string id;
  pid_t process = 0;
  uint64_t incarnation = 0;  // another one each time it joins (roster/types.h)
  bool operator==(const Target&) const = default;
};

// Workers that verify adds have names of their own.
std::string joiner_id(int number);
bool is_joiner(const Target& target);

struct FaultTarget {
  std::vector<Target> victims;   // empty: another worker joins, or it hits the coordinator
  int signal = 0;                // that they get; 0: it takes more than a signal
  std::optional<Target> killed;  // besides, so that an aimed victim passes its point
  bool suspended = false;        // the same, of the victim: it passes its point when it rejoins
};

// Nothing: not now, there are too few (or, for a joiner, too many) of them. `free` are the members
// to which nothing is happening yet, by rank; `lanes` is how many workers the job can have.
std::optional<FaultTarget> choose_target(const launch::Fault& fault, std::vector<Target> free,
                                         int lanes);

// Whether this one will rejoin, or join, by itself: a slot of the launcher is started anew, a
// stopped worker goes on, one that joins comes. Who left, and a joiner that was killed, are gone.
bool comes_in(launch::FaultKind kind, const Target& target);

// Whether the incarnation that it hits is over: whoever is seen as that was hit a moment ago.
bool ends_incarnation(launch::FaultKind kind);
// Whether it hits a parameter server: `free` of choose_target are these then.
bool hits_server(launch::FaultKind kind);
// Whether it hits the coordinator and no worker.
bool hits_coordinator(launch::FaultKind kind);

// How long to wait until it falls, so that it is not always right behind a commit.
Duration delay_of(const launch::Fault& fault);
// How long a stopped worker or coordinator stays stopped: longer than the lease, in seconds.
double stop_seconds(const launch::Fault& fault, double lease);
// How long there is no coordinator, in seconds.
double absence_seconds(const launch::Fault& fault);
// How long a cut lasts after the job made progress again, in seconds.
double heal_seconds(const launch::Fault& fault);
// For how long a slow disk delays writes, in milliseconds: longer than `hang_timeout` seconds, but
// never longer than a minute.
int slow_disk_milliseconds(const launch::Fault& fault, double hang_timeout);

}  // namespace muster::cli
