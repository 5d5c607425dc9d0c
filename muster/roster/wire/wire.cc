#include "muster/roster/wire/wire.h"

#include <algorithm>
#include <utility>

namespace muster::roster {

namespace {

void to_wire(const WorkerKey& from, v1::WorkerKey& to) {
  to.set_id(from.id);
  to.set_incarnation(from.incarnation);
}

void to_wire(const Member& from, v1::Member& to) {
  to_wire(from.key, *to.mutable_key());
  to.set_host(from.host);
  to.set_lane_threads(from.lane_threads);
  to.mutable_lanes()->Add(from.lanes.begin(), from.lanes.end());
  to.set_role(from.role);
  for (const std::string& group : from.groups) to.add_groups(group);
}

void to_wire(const RosterDiff& from, v1::RosterDiff& to) {
  to.set_base(from.base);
  to.set_number(from.number);
  to.set_job(from.job);
  to.set_waiting(from.waiting);
  to.set_invalid_through(from.invalid_through);
  for (const WorkerKey& key : from.removed) to_wire(key, *to.add_removed());
  for (const Member& member : from.changed) to_wire(member, *to.add_changed());
  for (const WorkerKey& key : from.leaving) to_wire(key, *to.add_leaving());
  to.set_reason(from.reason);
  to.set_checksum(from.checksum);
}

WorkerKey from_wire(const v1::WorkerKey& from) { return {from.id(), from.incarnation()}; }

Member from_wire(const v1::Member& from) {
  return {.key = from_wire(from.key()),
          .host = from.host(),
          .lane_threads = from.lane_threads(),
          .lanes = {from.lanes().begin(), from.lanes().end()},
          .role = from.role(),
          .groups = {from.groups().begin(), from.groups().end()}};
}

}  // namespace

void to_wire(const Roster& from, v1::Roster& to) {
  to.set_number(from.number);
  to.set_job(from.job);
  to.set_waiting(from.waiting);
  to.set_invalid_through(from.invalid_through);
  for (const Member& member : from.members) to_wire(member, *to.add_members());
  for (const WorkerKey& key : from.leaving) to_wire(key, *to.add_leaving());
  to.set_reason(from.reason);
}

Roster from_wire(const v1::Roster& from) {
  Roster to;
  to.number = from.number();
  to.job = from.job();
  to.waiting = from.waiting();
  to.invalid_through = from.invalid_through();
  for (const auto& member : from.members()) to.members.push_back(from_wire(member));
  for (const auto& key : from.leaving()) to.leaving.push_back(from_wire(key));
  to.reason = from.reason();
  return to;
}

RosterDiff from_wire(const v1::RosterDiff& from) {
  RosterDiff to;
  to.base = from.base();
  to.number = from.number();
  to.job = from.job();
  to.waiting = from.waiting();
  to.invalid_through = from.invalid_through();
  for (const auto& key : from.removed()) to.removed.push_back(from_wire(key));
  for (const auto& member : from.changed()) to.changed.push_back(from_wire(member));
  for (const auto& key : from.leaving()) to.leaving.push_back(from_wire(key));
  to.reason = from.reason();
  to.checksum = from.checksum();
  return to;
}

void to_wire(const JobFingerprint& from, v1::Fingerprint& to) {
  to.set_kernels(from.kernels);
  to.set_model(from.model);
  to.set_train_data(from.train_data);
  to.set_test_data(from.test_data);
  to.set_model_file(from.model_file);
}

JobFingerprint from_wire(const v1::Fingerprint& from) {
  return {.kernels = from.kernels(),
          .model = from.model(),
          .train_data = from.train_data(),
          .test_data = from.test_data(),
          .model_file = from.model_file()};
}

void to_wire(const JoinRequest& from, v1::Join& to) {
  to.set_version(kProtocol);
  to_wire(from.key, *to.mutable_key());
  to.set_job(from.job);
  to.set_host(from.host);
  to.set_role(from.role);
  to.set_site(from.site);
  to.set_lane_threads(from.lane_threads);
  to.set_process(from.process);
  to_wire(from.fingerprint, *to.mutable_fingerprint());
  to_wire(from.held, *to.mutable_held());
  to.set_highest(from.highest);
}

JoinRequest from_wire(const v1::Join& from) {
  JoinRequest to;
  to.key = from_wire(from.key());
  to.job = from.job();
  to.host = from.host();
  to.role = from.role();
  to.site = from.site();
  to.lane_threads = from.lane_threads();
  to.process = from.process();
  to.fingerprint = from_wire(from.fingerprint());
  to.held = from_wire(from.held());
  to.highest = from.highest();
  return to;
}

void to_wire(const Heartbeat& from, v1::Heartbeat& to) {
  to.set_sequence(from.sequence);
  to.set_known(from.known);
  to.set_group(from.group);
  to.set_broken(from.broken);
  to.set_suspect(from.suspect);
  to.set_trouble(from.trouble);
  to.set_faulty(from.faulty);
  to.set_activity(static_cast<uint32_t>(from.activity));
  to.set_step(from.step);
  to.set_progress(from.progress);
  to.set_still_ns(from.still.count());
  to.set_lane_seconds(from.lane_seconds);
  to.set_leaving(from.leaving);
  to.set_finished(from.finished);
}

Heartbeat from_wire(const v1::Heartbeat& from) {
  Heartbeat to;
  to.sequence = from.sequence();
  to.known = from.known();
  to.group = from.group();
  to.broken = from.broken();
  to.suspect = from.suspect();
  to.trouble = from.trouble();
  to.faulty = from.faulty();
  const auto last = static_cast<uint32_t>(Activity::kLeft);
  to.activity = from.activity() <= last ? static_cast<Activity>(from.activity()) : Activity::kIdle;
  to.step = from.step();
  to.progress = from.progress();
  to.still = Duration{std::max<int64_t>(from.still_ns(), 0)};
  to.lane_seconds = from.lane_seconds() > 0 ? from.lane_seconds() : 0;
  to.leaving = from.leaving();
  to.finished = from.finished();
  return to;
}

namespace {

struct Writer {
  v1::ToWorker& to;
  void operator()(const Welcome& welcome) const {
    to.mutable_welcome()->set_lease_ns(welcome.lease.count());
    to.mutable_welcome()->set_heartbeat_ns(welcome.heartbeat.count());
  }
  void operator()(const Refused& refused) const {
    to.mutable_refused()->set_reason(refused.reason);
    to.mutable_refused()->set_retry(refused.retry);
  }
  void operator()(const Removed& removed) const {
    to.mutable_removed()->set_reason(removed.reason);
    to.mutable_removed()->set_cause(static_cast<uint32_t>(removed.cause));
  }
  void operator()(const RosterDiff& diff) const { to_wire(diff, *to.mutable_roster()); }
  void operator()(const Addresses& addresses) const {
    auto& message = *to.mutable_addresses();
    message.set_roster(addresses.roster);
    message.set_group(addresses.group);
    message.set_ok(addresses.blobs != nullptr);
    message.set_reason(addresses.reason);
    message.set_superseded(addresses.superseded);
    if (!addresses.blobs) return;
    for (const std::string& blob : *addresses.blobs) message.add_blobs(blob);
  }
  void operator()(const Released&) const { to.mutable_released(); }
  void operator()(const Ended& ended) const {
    to.mutable_ended()->set_finished(ended.finished);
    to.mutable_ended()->set_reason(ended.reason);
  }
};

}  // namespace

void to_wire(const ToWorker& from, v1::ToWorker& to) { std::visit(Writer{to}, from); }

namespace {

Addresses from_wire(v1::Addresses&& from) {
  Addresses to;
  to.roster = from.roster();
  to.group = from.group();
  to.reason = from.reason();
  to.superseded = from.superseded();
  if (!from.ok()) return to;
  auto blobs = std::make_shared<std::vector<std::string>>();
  for (auto& blob : *from.mutable_blobs()) blobs->push_back(std::move(blob));
  to.blobs = std::move(blobs);
  return to;
}

Removed from_wire(const v1::Removed& from) {
  const auto last = static_cast<uint32_t>(RemovalCause::kFaulty);
  return {from.reason(), from.cause() <= last ? static_cast<RemovalCause>(from.cause())
                                              : RemovalCause::kDisconnected};
}

}  // namespace

std::optional<ToWorker> from_wire(v1::ToWorker&& from) {
  switch (from.message_case()) {
    case v1::ToWorker::kWelcome:
      return Welcome{Duration{from.welcome().lease_ns()}, Duration{from.welcome().heartbeat_ns()}};
    case v1::ToWorker::kRefused:
      return Refused{from.refused().reason(), from.refused().retry()};
    case v1::ToWorker::kRemoved:
      return from_wire(from.removed());
    case v1::ToWorker::kRoster:
      return from_wire(from.roster());
    case v1::ToWorker::kAddresses:
      return from_wire(std::move(*from.mutable_addresses()));
    case v1::ToWorker::kReleased:
      return Released{};
    case v1::ToWorker::kEnded:
      return Ended{from.ended().finished(), from.ended().reason()};
    case v1::ToWorker::MESSAGE_NOT_SET:
      break;
  }
  return std::nullopt;
}

void to_wire(const FromWorker& from, v1::FromWorker& to) {
  if (const auto* join = std::get_if<JoinRequest>(&from)) {
    to_wire(*join, *to.mutable_join());
  } else if (const auto* beat = std::get_if<Heartbeat>(&from)) {
    to_wire(*beat, *to.mutable_heartbeat());
  } else {
    const auto& offer = std::get<AddressOffer>(from);
    to.mutable_addresses()->set_roster(offer.roster);
    to.mutable_addresses()->set_group(offer.group);
    to.mutable_addresses()->set_blob(offer.blob);
  }
}

void to_wire(const StatusReport& from, v1::StatusReply& to) {
  to_wire(from.roster, *to.mutable_roster());
  for (const WorkerStatus& worker : from.workers) {
    v1::WorkerStatus& status = *to.add_workers();
    to_wire(worker.member, *status.mutable_member());
    status.set_standing(worker.standing);
    to_wire(worker.beat, *status.mutable_beat());
    status.set_lane_seconds(worker.lane_seconds);
    status.set_heard_ago_ns(worker.heard_ago.count());
    status.set_process(worker.process);
  }
  for (const EventLine& event : from.events) {
    v1::EventLine& line = *to.add_events();
    line.set_ago_ns(event.ago.count());
    line.set_roster(event.roster);
    line.set_text(event.text);
  }
  to.set_standing(from.standing);
  to.set_finished(from.finished);
  to.set_up_ns(from.up.count());
  to.set_job(from.job);
  to.set_lanes(from.lanes);
  to.set_min_workers(from.min_workers);
  to.set_max_workers(from.max_workers);
  to.set_step(from.step);
  to.set_ended(from.ended);
  to.set_servers(from.servers);
}

StatusReport from_wire(const v1::StatusReply& from) {
  StatusReport to;
  to.roster = from_wire(from.roster());
  for (const auto& worker : from.workers()) {
    WorkerStatus status;
    status.member = from_wire(worker.member());
    status.standing = worker.standing();
    status.beat = from_wire(worker.beat());
    status.lane_seconds = worker.lane_seconds();
    status.heard_ago = Duration{worker.heard_ago_ns()};
    status.process = worker.process();
    to.workers.push_back(std::move(status));
  }
  for (const auto& event : from.events()) {
    to.events.push_back({Duration{event.ago_ns()}, event.roster(), event.text()});
  }
  to.standing = from.standing();
  to.finished = from.finished();
  to.up = Duration{from.up_ns()};
  to.job = from.job();
  to.lanes = from.lanes();
  to.min_workers = from.min_workers();
  to.max_workers = from.max_workers();
  to.step = from.step();
  to.ended = from.ended();
  to.servers = from.servers();
  return to;
}

void to_wire(const RunOffer& from, v1::OfferReply& to) {
  to.set_run(from.run);
  to.set_attempt(from.attempt);
  to.set_job(from.job);
  to.set_has_checkpoint(from.has_checkpoint);
}

RunOffer from_wire(const v1::OfferReply& from) {
  return {.run = from.run(),
          .attempt = from.attempt(),
          .job = from.job(),
          .has_checkpoint = from.has_checkpoint()};
}

}  // namespace muster::roster
