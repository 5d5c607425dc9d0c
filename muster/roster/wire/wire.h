// Between the values of types.h and messages.h and their form on the wire (roster.proto). Only the
// coordinator and its client include this; no other module sees Protobuf.
#pragma once

#include <optional>

#include "muster/base/run_offer.h"
#include "muster/roster/messages.h"
#include "muster/roster/status.h"
#include "muster/roster/types.h"
#include "muster/roster/wire/roster.pb.h"

namespace muster::roster {

// Of roster.proto. To be raised when an older peer would misunderstand.
inline constexpr uint32_t kProtocol = 7;

void to_wire(const Roster& from, v1::Roster& to);
void to_wire(const JoinRequest& from, v1::Join& to);
void to_wire(const Heartbeat& from, v1::Heartbeat& to);
void to_wire(const ToWorker& from, v1::ToWorker& to);
void to_wire(const FromWorker& from, v1::FromWorker& to);
void to_wire(const StatusReport& from, v1::StatusReply& to);
void to_wire(const RunOffer& from, v1::OfferReply& to);

// Whatever comes over a wire is taken as it is: the Registrar judges it. Fields that are out of any
// range (an activity that does not exist) become the nearest harmless value.
Roster from_wire(const v1::Roster& from);
RosterDiff from_wire(const v1::RosterDiff& from);
JoinRequest from_wire(const v1::Join& from);
Heartbeat from_wire(const v1::Heartbeat& from);
// Nothing: a message that this version does not know.
std::optional<ToWorker> from_wire(v1::ToWorker&& from);
StatusReport from_wire(const v1::StatusReply& from);
RunOffer from_wire(const v1::OfferReply& from);

}  // namespace muster::roster
