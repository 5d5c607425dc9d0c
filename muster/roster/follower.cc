#include "muster/roster/follower.h"

#include <algorithm>

#include "muster/base/check.h"
#include "muster/base/hash.h"

namespace muster::roster {

Follower::Follower(FollowerOptions options, Moment now)
    : options_(std::move(options)),
      connect_at_(now),
      backoff_(options_.least_backoff),
      alone_since_(now),
      interval_(options_.heartbeat),
      next_beat_(now),
      key_(options_.join.key),
      progressed_(now) {
  key_.incarnation = draw();
}

// Not 0, which means "no incarnation".
uint64_t Follower::draw() {
  ++draws_;
  return std::max<uint64_t>(hash64(&draws_, sizeof draws_, options_.seed), 1);
}

// ---- The connection.

void Follower::connected(Moment /*now*/) {
  if (!connecting_) return;
  connecting_ = false;
  connected_ = true;
  send_join();
}

void Follower::send_join() {
  streamed_ = std::make_shared<const Roster>();
  // A worker that holds no roster may have been in one that never reached it, and be removed by
  // now. So it joins with a new key each time.
  if (newest_->number == 0) key_.incarnation = draw();
  JoinRequest request = options_.join;
  request.key = key_;
  request.held = *newest_;
  request.highest = highest_;
  act(Send{std::move(request)});
}

void Follower::disconnected(Moment now) {
  if (!connecting_ && !connected_) return;
  if (welcome_) alone_since_ = now;
  connecting_ = connected_ = welcome_ = false;
  reconnect_later(now);
}

void Follower::reconnect_later(Moment now) {
  // A jitter of one half, so that a thousand workers do not reconnect in step.
  const double jitter = 0.75 + 0.5 * static_cast<double>(draw() >> 11) * 0x1p-53;
  connect_at_ =
      now + Duration{static_cast<int64_t>(static_cast<double>(backoff_.count()) * jitter)};
  backoff_ = std::min(2 * backoff_, options_.longest_backoff);
}

void Follower::hang_up() {
  if (connecting_ || connected_) act(Disconnect{});
  connecting_ = connected_ = welcome_ = false;
}

void Follower::tick(Moment now) {
  if (connect_at_ && now >= *connect_at_ && standing_ == Standing::kUp) {
    connect_at_.reset();
    connecting_ = true;
    act(Connect{});
  }
  if (welcome_ && now >= next_beat_) send_heartbeat(now);
  if (roster_due_ && now >= *roster_due_) {
    roster_due_.reset();
    report_broken(now, past_, "", "a commit announced a newer roster, which did not arrive");
  }
  if (orphaned_at() && now >= *orphaned_at()) order_abort("there is no coordinator");
  if (exit_at_ && now >= *exit_at_) {
    exit_at_.reset();
    if (beat_.progress == exit_progress_) {
      act(ExitStuck{reason_});
    } else {
      exit_at_ = now + exit_after_;
      exit_progress_ = beat_.progress;
    }
  }
}

std::optional<Moment> Follower::wake() const {
  std::optional<Moment> result;
  const auto consider = [&](std::optional<Moment> moment) {
    if (moment && (!result || *moment < *result)) result = moment;
  };
  if (standing_ == Standing::kUp) consider(connect_at_);
  if (welcome_) consider(next_beat_);
  consider(roster_due_);
  consider(exit_at_);
  if (!abort_ordered_) consider(orphaned_at());
  return result;
}

// When a worker that waits for the addresses of the others gives up: a coordinator would have
// replaced the roster if one of them did not come.
std::optional<Moment> Follower::orphaned_at() const {
  if (phase_ != Phase::kForming || welcome_) return std::nullopt;
  return alone_since_ + options_.orphaned;
}

void Follower::received(Moment now, const ToWorker& message) {
  if (!connected_) return;
  std::visit([&](const auto& one) { take(now, one); }, message);
}

void Follower::take(Moment now, const Welcome& message) {
  welcome_ = true;
  reason_.clear();
  backoff_ = options_.least_backoff;
  if (message.heartbeat > Duration{0}) interval_ = message.heartbeat;
  send_heartbeat(now);
  send_offers();
}

void Follower::take(Moment now, const Refused& message) {
  reason_ = message.reason;
  hang_up();
  // A group that trains is not given up for it: the coordinator that answers may be another job's,
  // and this job's may be back soon.
  if (message.retry || phase_ == Phase::kInGroup) {
    reconnect_later(now);
    return;
  }
  standing_ = Standing::kRefused;
  order_abort("the coordinator refused this worker: " + message.reason);
}

void Follower::take(Moment now, const Removed& message) {
  removed(now, message.reason, message.cause);
}

void Follower::removed(Moment now, std::string reason, RemovalCause cause) {
  standing_ = Standing::kRemoved;
  reason_ = std::move(reason);
  released_ = false;
  newest_ = std::make_shared<const Roster>();
  roster_due_.reset();
  hang_up();
  alone_since_ = now;
  if (options_.hang_timeout > Duration{0}) {
    exit_after_ = cause == RemovalCause::kHung
                      ? std::min(options_.stuck_exit, options_.hang_timeout)
                      : options_.hang_timeout;
    exit_at_ = now + exit_after_;
    exit_progress_ = beat_.progress;
  }
  order_abort("this worker was removed: " + reason_);
}

void Follower::take(Moment now, const RosterDiff& message) {
  auto next = apply(*streamed_, message);
  if (!next.ok()) {
    // Not what the coordinator meant: a new connection brings the whole roster.
    hang_up();
    reconnect_later(now);
    return;
  }
  streamed_ = std::make_shared<const Roster>(std::move(*next));
  // A coordinator that does not know this worker's roster yet learns it from the heartbeat.
  if (streamed_->number <= newest_->number) return;
  newest_ = streamed_;
  highest_ = std::max(highest_, streamed_->number);
  if (newest_->number > past_) roster_due_.reset();
  if (phase_ == Phase::kForming) {
    order_abort(fmt::format("roster {} has replaced it: {}", sequence_of(newest_->number),
                            newest_->reason));
  } else if (phase_ == Phase::kInGroup) {
    if (const auto why = why_abort(*group_, *newest_)) order_abort(*why);
  }
  send_heartbeat(now);
}

void Follower::take(Moment /*now*/, const Addresses& message) {
  const auto offer = offered_.find(message.group);
  if (phase_ != Phase::kForming || message.roster != group_->number || offer == offered_.end()) {
    return;
  }
  if (message.blobs && message.blobs->size() != group_->group(message.group).size()) {
    act(Abort{group_->number, "the coordinator sent the addresses of another group"});
  } else if (message.blobs) {
    offered_.erase(offer);
    act(AddressesReady{message.roster, message.group, message.blobs});
  } else if (message.superseded) {
    order_abort(message.reason);
  } else {
    // The coordinator does not know yet that this group will not come about: failed() reports it.
    act(Abort{group_->number, message.reason});
  }
}

void Follower::take(Moment /*now*/, const Released& /*message*/) { released_ = true; }

void Follower::take(Moment /*now*/, const Ended& message) {
  standing_ = Standing::kEnded;
  job_finished_ = message.finished;
  reason_ = message.reason;
  roster_due_.reset();
  hang_up();
  if (!job_finished_) {
    order_abort("the job was stopped: " + reason_);
  } else if (phase_ == Phase::kForming) {
    // Only the members of the last group part by themselves.
    order_abort("the job is finished: " + reason_);
  }
}

void Follower::order_abort(const std::string& reason) {
  if (phase_ == Phase::kNoGroup || abort_ordered_) return;
  abort_ordered_ = true;
  abort_reason_ = reason;
  act(Abort{group_->number, reason});
}

void Follower::send_heartbeat(Moment now) {
  next_beat_ = now + interval_;
  if (!welcome_) return;
  beat_.known = newest_->number;
  ++beat_.sequence;
  beat_.still = now - progressed_;
  act(Send{beat_});
}

void Follower::send_offers() {
  if (!welcome_ || phase_ != Phase::kForming) return;
  for (const auto& [group, blob] : offered_) act(Send{AddressOffer{group_->number, group, blob}});
}

// ---- The worker's thread.

Instruction Follower::next(Moment now) {
  using Kind = Instruction::Kind;
  MUSTER_CHECK(phase_ == Phase::kNoGroup, "next() while a group is being formed or used");
  exit_at_.reset();
  switch (standing_) {
    case Standing::kEnded:
      return {job_finished_ ? Kind::kFinished : Kind::kStopped, nullptr, reason_};
    case Standing::kRefused:
      return {Kind::kRefused, nullptr, reason_};
    case Standing::kRemoved:
      return rejoin(now, reason_);
    case Standing::kUp:
      break;
  }
  if (!welcome_ && now - alone_since_ >= options_.orphaned)
    return {Kind::kOrphaned, nullptr, reason_};
  if (!newest_->has(key_)) {
    if (beat_.leaving) return depart(now);
    if (newest_->number == 0) return {};
    hang_up();
    return rejoin(now, fmt::format("roster {} is without this worker: {}",
                                   sequence_of(newest_->number), newest_->reason));
  }
  if (newest_->waiting || newest_->number <= past_) return {};
  return begin_forming(now);
}

// It asked to leave, and is no member (any more): says so, and exits once no member needs it.
Instruction Follower::depart(Moment now) {
  const bool never_member = newest_->number == 0;
  // It has asked to join and not been answered: until then it cannot say that it leaves.
  if (never_member && connected_ && !welcome_) return {};
  if (beat_.activity != Activity::kLeft) {
    beat_.activity = Activity::kLeft;
    send_heartbeat(now);
  }
  if (released_ || never_member) return {Instruction::Kind::kReleased, nullptr, ""};
  return {};
}

Instruction Follower::rejoin(Moment now, const std::string& why) {
  // What is there to rejoin for.
  if (beat_.leaving) return {Instruction::Kind::kReleased, nullptr, ""};
  standing_ = Standing::kUp;
  newest_ = std::make_shared<const Roster>();
  past_ = 0;
  roster_due_.reset();
  key_.incarnation = draw();
  const uint64_t sequence = beat_.sequence;
  beat_ = {};
  beat_.sequence = sequence;
  progressed_ = now;
  connect_at_ = now;
  return {Instruction::Kind::kRejoined, nullptr, why};
}

Instruction Follower::begin_forming(Moment now) {
  phase_ = Phase::kForming;
  group_ = newest_;
  abort_ordered_ = false;
  offered_.clear();
  beat_.activity = Activity::kForming;
  progress(now);
  send_heartbeat(now);
  return {Instruction::Kind::kForm, group_, ""};
}

void Follower::offer(Moment now, RosterNumber roster, const std::string& group, std::string blob) {
  if (phase_ != Phase::kForming || roster != group_->number) return;
  progress(now);
  const auto& own = offered_[group] = std::move(blob);
  if (welcome_) act(Send{AddressOffer{roster, group, own}});
}

void Follower::formed(Moment now, RosterNumber roster) {
  if (phase_ != Phase::kForming || roster != group_->number) return;
  phase_ = Phase::kInGroup;
  beat_.group = roster;
  progress(now);
  send_heartbeat(now);
  // The order may have come when there was no group to abort yet.
  if (abort_ordered_) act(Abort{roster, abort_reason_});
}

void Follower::close_group(Moment now) {
  past_ = std::max(past_, group_->number);
  if (phase_ == Phase::kInGroup) alone_since_ = std::max(alone_since_, now);
  phase_ = Phase::kNoGroup;
  offered_.clear();
  beat_.group = 0;
  beat_.activity = Activity::kIdle;
  progress(now);
}

void Follower::failed(Moment now, RosterNumber roster, const std::string& suspect,
                      const std::string& trouble, const std::string& faulty) {
  if (phase_ == Phase::kNoGroup || roster != group_->number) return;
  // If the failure was ordered, the coordinator knows why. Who is faulty it does not know.
  const bool known = std::exchange(abort_ordered_, false) && faulty.empty();
  close_group(now);
  if (known) {
    send_heartbeat(now);
  } else {
    report_broken(now, roster, suspect, trouble, faulty);
  }
}

void Follower::report_broken(Moment now, RosterNumber roster, const std::string& suspect,
                             const std::string& trouble, const std::string& faulty) {
  beat_.broken = roster;
  beat_.suspect = suspect;
  beat_.faulty = faulty;
  beat_.trouble = trouble;
  progress(now);
  send_heartbeat(now);
}

uint8_t Follower::commit_byte() const { return roster::commit_byte(*group_, *newest_); }

bool Follower::committed(Moment now, uint64_t step, double lane_seconds, uint8_t agreed) {
  beat_.step = step;
  beat_.lane_seconds = lane_seconds;
  progress(now);
  switch (after_commit(agreed, *group_, *newest_)) {
    case AfterCommit::kGoOn:
      return false;
    case AfterCommit::kSwitch:
      break;
    case AfterCommit::kWait:
      roster_due_ = now + options_.roster_timeout;
      break;
  }
  abort_ordered_ = false;
  close_group(now);
  send_heartbeat(now);
  return true;
}

void Follower::set_activity(Moment now, Activity activity) {
  if (activity != beat_.activity) progress(now);
  beat_.activity = activity;
}

void Follower::progress(Moment now) {
  ++beat_.progress;
  progressed_ = now;
}

void Follower::leave(Moment now) {
  if (std::exchange(beat_.leaving, true)) return;
  send_heartbeat(now);
}

void Follower::finished(Moment now) {
  if (std::exchange(beat_.finished, true)) return;
  send_heartbeat(now);
}

}  // namespace muster::roster
