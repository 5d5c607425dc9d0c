// What workers and the coordinator say to each other, as plain values. Registrar (the coordinator's
// side) and Follower (the worker's side) exchange these; wire/ turns them into protobuf, the
// simulation passes them on as they are.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "muster/roster/address_exchange.h"
#include "muster/roster/types.h"

namespace muster::roster {

// ---- From the coordinator to a worker.

// The worker is known. Whether it is a member, a roster will say.
struct Welcome {
  Duration lease{0};
  Duration heartbeat{0};
};
// The worker cannot join.
struct Refused {
  std::string reason;
  bool retry = false;  // it may succeed later: keep trying
};
// The worker's key was removed and is never accepted again: rejoin with a new incarnation.
struct Removed {
  std::string reason;
  RemovalCause cause = RemovalCause::kExited;
};
// The answer to an AddressOffer.
struct Addresses {
  RosterNumber roster = 0;
  std::string group;
  Blobs blobs;              // by rank in that group; null: the exchange failed
  std::string reason;       // if it failed
  bool superseded = false;  // it failed because a newer roster is on its way to this worker
};
// The worker asked to leave, and no member needs it any more.
struct Released {};
// Ended (types.h): the job has ended.
using ToWorker = std::variant<Welcome, Refused, Removed, RosterDiff, Addresses, Released, Ended>;

// ---- From a worker to the coordinator.

// Its addresses for one group of this roster.
struct AddressOffer {
  RosterNumber roster = 0;
  std::string group;
  std::string blob;
};
using FromWorker = std::variant<JoinRequest, Heartbeat, AddressOffer>;

}  // namespace muster::roster
