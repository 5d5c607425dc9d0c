#include "muster/roster/simulation/worker.h"

#include <algorithm>

#include "muster/base/hash.h"
#include "muster/roster/lanes.h"

namespace muster::roster::simulation {

using namespace std::chrono_literals;

Worker::Worker(Surroundings around, int slot, Duration lane_time, int32_t threads)
    : around_(around), world_(around.world), slot_(slot), lane_time_(lane_time), threads_(threads) {
  key_.id = fmt::format("w{}", slot);
}

bool Worker::deferred(std::function<void()> again) {
  if (stopped_until_ <= world_.now()) return false;
  world_.at(stopped_until_, [this, life = life_, again = std::move(again)] {
    if (running_ && life == life_) again();
  });
  return true;
}

void Worker::later(Duration delay, std::function<void()> what) {
  world_.after(delay, [this, life = life_, what = std::move(what)] {
    if (!running_ || life != life_) return;
    if (stopped_until_ > world_.now()) {
      deferred(what);
    } else {
      what();
    }
  });
}

void Worker::work(Duration delay, std::function<void()> what) {
  later(delay, [this, what = std::move(what)] {
    if (!hung_) what();
  });
}

void Worker::start() {
  if (running_) return;
  running_ = true;
  ++life_;
  stopped_until_ = {};
  hung_ = refused_ = leaving_ = false;
  key_.incarnation = world_.draw();
  session_ = 0;
  welcome_ = false;
  streamed_ = newest_ = {};
  inbox_.clear();
  highest_ = broken_ = past_ = forming_ = 0;
  suspect_.clear();
  activity_ = Activity::kIdle;
  has_state_ = holds_sums_ = has_message_ = false;
  position_ = {};
  state_ = 0;
  world_.trace("{}: starts", id());
  later(world_.between(1ms, 20ms), [this] { connect(); });
  later(around_.timing.heartbeat, [this] { beats(); });
}

void Worker::kill(Death death, bool launcher_sees) {
  if (!running_) return;
  world_.trace("{}: {} at step {}", id(), death == Death::kProcess ? "is killed" : "loses power",
               step());
  if (group_) {
    group_->leave(rank_,
                  death == Death::kProcess ? Group::Going::kAbruptly : Group::Going::kSilently);
  }
  group_.reset();
  if (session_ != 0) {
    death == Death::kProcess ? around_.office.close(session_) : around_.office.vanish(session_);
  }
  session_ = 0;
  running_ = false;
  if (launcher_sees) around_.office.send_exited(id(), static_cast<int64_t>(life_));
}

void Worker::stop(Moment until) {
  if (!running_) return;
  world_.trace("{}: is stopped for {:.0f} ms", id(), seconds(until - world_.now()) * 1e3);
  stopped_until_ = until;
  if (group_ && formed_) group_->freeze(rank_, until);
}

void Worker::hang() {
  if (!running_) return;
  world_.trace("{}: hangs", id());
  hung_ = true;
}

void Worker::leave() {
  if (!running_ || leaving_) return;
  world_.trace("{}: is told to leave", id());
  leaving_ = true;
  beat();
  later(around_.timing.leave, [this] { kill(Death::kProcess, true); });
  if (!group_ && forming_ == 0) advance();
}

// ---- Towards the coordinator

void Worker::connect() {
  if (session_ != 0 || refused_) return;
  session_ = around_.office.connect(slot_, this);
  if (session_ == 0) {
    later(world_.between(10ms, 80ms), [this] { connect(); });
    return;
  }
  streamed_ = {};
  welcome_ = false;
  // It may have been in a roster that never reached it, and be out by now.
  if (newest_.number == 0 && world_.plant() != Plant::kCountLate) key_.incarnation = world_.draw();
  JoinRequest request;
  request.key = key_;
  request.job = "sim";
  request.host = fmt::format("host-{}", slot_);
  request.slots = threads_;
  request.process = static_cast<int64_t>(life_);
  request.fingerprint = "same";
  request.held = newest_;
  request.highest = highest_;
  if (world_.plant() == Plant::kCountLate) request.held = {};
  around_.office.send_join(session_, request);
}

void Worker::on_break(SessionId session) {
  if (session != session_ || !running_) return;
  if (deferred([this, session] { on_break(session); })) return;
  world_.trace("{}: loses the coordinator", id());
  around_.office.vanish(session_);
  session_ = 0;
  later(world_.between(5ms, 60ms), [this] { connect(); });
}

// It is out: draws another incarnation and asks in again. What it has of the state it keeps.
void Worker::ask_in_again() {
  ++around_.witness.tally.zombies;
  leave_group(Group::Going::kAbruptly);
  stop_forming();
  if (session_ != 0) around_.office.close(session_);
  session_ = 0;
  newest_ = streamed_ = {};
  broken_ = past_ = 0;
  suspect_.clear();
  activity_ = Activity::kIdle;
  if (world_.plant() != Plant::kCountLate) key_.incarnation = world_.draw();
  if (leaving_) {
    kill(Death::kProcess, true);
    return;
  }
  later(world_.between(5ms, 60ms), [this] { connect(); });
}

void Worker::beats() {
  beat();
  later(around_.timing.heartbeat, [this] { beats(); });
  // A connection over which nothing can come is given up after a while.
  if (session_ != 0 &&
      world_.cut_until(slot_, kCoordinator) > world_.now() + around_.timing.keepalive) {
    around_.office.close(session_);
    session_ = 0;
    later(world_.between(10ms, 80ms), [this] { connect(); });
  }
}

void Worker::beat() {
  if (session_ == 0 || !welcome_) return;
  Heartbeat beat;
  beat.sequence = ++beats_;
  beat.known = newest_.number;
  beat.group = group_ && formed_ ? group_->roster().number : 0;
  beat.broken = world_.plant() == Plant::kSilentFailure ? 0 : broken_;
  beat.suspect = suspect_;
  beat.trouble = suspect_.empty() ? "" : "no way to " + suspect_;
  beat.activity = activity_;
  beat.step = position_.step;
  beat.progress = progress_;
  beat.lane_seconds = position_.step > 0 ? seconds(lane_time_) : 0;
  beat.leaving = leaving_;
  around_.office.send_beat(session_, beat);
}

void Worker::on_message(SessionId session, const ToWorker& message) {
  if (session != session_ || !running_) return;
  // What comes in one connection stays in order, also over a stop.
  inbox_.emplace_back(session, message);
  read_inbox();
}

void Worker::read_inbox() {
  if (deferred([this] { read_inbox(); })) return;
  while (!inbox_.empty()) {
    const auto [from, next] = std::move(inbox_.front());
    inbox_.pop_front();
    if (from == session_) take(next);
  }
}

void Worker::take(const ToWorker& message) {
  if (std::holds_alternative<Welcome>(message)) {
    welcome_ = true;
    beat();
    if (forming_ != 0) around_.office.send_addresses(session_, forming_, blob_);
  } else if (const auto* refused = std::get_if<Refused>(&message)) {
    world_.trace("{}: refused: {}", id(), refused->reason);
    around_.office.vanish(session_);
    session_ = 0;
    refused_ = !refused->retry;
    later(world_.between(50ms, 150ms), [this] { connect(); });
  } else if (const auto* out = std::get_if<Out>(&message)) {
    world_.trace("{}: is told that it is out: {}", id(), out->reason);
    // A process that hangs cannot ask in; its launcher ends it.
    hung_ ? kill(Death::kProcess, true) : ask_in_again();
  } else if (const auto* diff = std::get_if<RosterDiff>(&message)) {
    take_roster(*diff);
  } else if (const auto* addresses = std::get_if<Addresses>(&message)) {
    take_addresses(*addresses);
  } else if (std::holds_alternative<Released>(message) && activity_ == Activity::kDone) {
    world_.trace("{}: goes", id());
    around_.office.close(session_);
    session_ = 0;
    running_ = false;
  }
}

void Worker::take_roster(const RosterDiff& diff) {
  auto next = muster::roster::apply(streamed_, diff);
  if (!next.ok()) {
    around_.witness.violated(fmt::format("{}: {}", id(), next.error().message()));
    return;
  }
  streamed_ = *next;
  around_.witness.handed(diff.number, diff.checksum);
  if (next->number <= newest_.number) return;
  highest_ = std::max(highest_, next->number);
  newest_ = std::move(*next);
  if (group_ && formed_) {
    const auto why = why_abort(group_->roster(), newest_);
    if (!why || world_.plant() == Plant::kNeverAbort) {
      beat();
      return;
    }
    world_.trace("{}: leaves its group at step {}: {}", id(), step(), *why);
    ++around_.witness.tally.aborted;
    leave_group(Group::Going::kAbruptly);
  } else {
    // A group that does not stand yet is not worth waiting for.
    leave_group(Group::Going::kAbruptly);
    stop_forming();
  }
  work(0ns, [this] { advance(); });
}

// ---- Forming a group

void Worker::advance() {
  if (group_ || forming_ != 0 || activity_ == Activity::kDone) return;
  switch (next_move(key_, leaving_, newest_, past_)) {
    case Next::kForm:
      begin_forming();
      break;
    case Next::kWait:
      if (leaving_ && newest_.number == 0) {  // never was in
        kill(Death::kProcess, false);
        return;
      }
      activity_ = Activity::kIdle;
      beat();
      break;
    case Next::kGo:
      activity_ = Activity::kDone;
      beat();
      break;
    case Next::kOut:
      ask_in_again();
      break;
  }
}

void Worker::begin_forming() {
  forming_ = newest_.number;
  blob_ = fmt::format("{}/{}", slot_, world_.draw());
  activity_ = Activity::kForming;
  beat();
  if (session_ != 0 && welcome_) around_.office.send_addresses(session_, forming_, blob_);
  work(2 * around_.timing.form, [this, number = forming_, blob = blob_] {
    if (forming_ == number && blob_ == blob && !group_) on_failed(-1, "no addresses came");
  });
}

void Worker::stop_forming() {
  forming_ = 0;
  if (activity_ == Activity::kForming) activity_ = Activity::kIdle;
}

void Worker::take_addresses(const Addresses& addresses) {
  if (addresses.roster != forming_ || group_) return;
  if (!addresses.blobs) {
    const bool superseded = newest_.number > forming_;
    if (superseded) {
      stop_forming();
      work(0ns, [this] { advance(); });
    } else if (addresses.reason.find("taken its place") == std::string::npos) {
      on_failed(-1, addresses.reason);
    }
    // Otherwise the roster that took its place is on its way to us.
    return;
  }
  if (hung_) return;
  std::string all;
  std::vector<int> slots;
  for (const std::string& blob : *addresses.blobs) {
    all += blob + " ";
    slots.push_back(std::stoi(blob));
  }
  const uint64_t key = hash64(all.data(), all.size(), newest_.number);
  auto& group = around_.meetings[key];
  if (!group) {
    group = std::make_shared<Group>(world_, around_.witness,
                                    std::make_shared<const Roster>(newest_), slots, around_.lanes);
  }
  group_ = group;
  formed_ = false;
  rank_ = newest_.rank_of(key_);
  group_->arrive(rank_, this, around_.timing.form);
}

void Worker::on_formed() {
  if (deferred([this, group = group_] {
        if (group_ == group) on_formed();
      })) {
    return;
  }
  if (hung_ || !group_) return;
  formed_ = true;
  forming_ = 0;
  operation_ = 0;
  phase_ = Phase::kAgreeing;
  activity_ = Activity::kWaiting;
  beat();
  Offering offering;
  Report& report = offering.report;
  report.has_state = has_state_;
  report.position = position_;
  report.holds_sums = holds_sums_;
  if (world_.plant() == Plant::kRollWithoutSums && has_state_) report.holds_sums = true;
  report.has_message = has_message_;
  report.message_of = message_.of;
  saved_ = around_.disk.newest();
  report.restorable = saved_;
  if (world_.plant() == Plant::kForgetCheckpoints && has_state_) report.restorable = 0;
  report.state_hash = has_state_ && position_.attempt == 0 ? state_ : 0;
  enter(offering);
}

void Worker::on_failed(int suspect, const std::string& why) {
  if (deferred([this, suspect, why, group = group_] {
        if (group_ == group) on_failed(suspect, why);
      })) {
    return;
  }
  if (hung_) return;
  ++around_.witness.tally.failed;
  broken_ = group_ ? group_->roster().number : forming_;
  suspect_.clear();
  if (group_ && suspect >= 0) {
    suspect_ = group_->roster().members[static_cast<size_t>(suspect)].key.id;
  }
  world_.trace("{}: its group of roster {} failed at step {} ({}, {})", id(), sequence_of(broken_),
               step(), suspect_.empty() ? "nobody to blame" : suspect_, why);
  leave_group(Group::Going::kAbruptly);
  stop_forming();
  report_broken(broken_);
}

void Worker::report_broken(RosterNumber number) {
  broken_ = number;
  past_ = std::max(past_, number);
  activity_ = Activity::kIdle;
  beat();
  work(0ns, [this] { advance(); });
}

void Worker::leave_group(Group::Going going) {
  if (!group_) return;
  if (formed_ && (phase_ == Phase::kReducing || phase_ == Phase::kCommitting)) {
    if (going != Group::Going::kByPlan) ++around_.witness.tally.redone;
  }
  old_lanes_ = my_lanes();
  const auto group = std::exchange(group_, nullptr);
  past_ = std::max(past_, group->roster().number);
  formed_ = false;
  forming_ = 0;
  group->leave(rank_, going);
}

const std::vector<int32_t>& Worker::my_lanes() const {
  return group_->roster().members[static_cast<size_t>(rank_)].lanes;
}

}  // namespace muster::roster::simulation
