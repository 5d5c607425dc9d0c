#include "muster/roster/simulation/worker.h"

#include <algorithm>

#include "muster/base/hash.h"
#include "muster/roster/lanes.h"

namespace muster::roster::simulation {

using namespace std::chrono_literals;

Worker::Worker(Surroundings around, int slot, Duration lane_time, int32_t threads)
    : around_(std::move(around)),
      world_(around_.world),
      id_(fmt::format("w{}", slot)),
      slot_(slot),
      lane_time_(lane_time),
      threads_(threads) {}

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
  hung_ = asking_ = dies_in_commit_ = false;
  session_ = 0;
  inbox_.clear();
  tick_at_.reset();
  forming_ = nullptr;
  has_state_ = holds_sums_ = has_message_ = false;
  position_ = {};
  state_ = 0;
  unreadable_.clear();
  world_.trace("{}: starts", id());
  FollowerOptions options;
  options.join.key.id = id_;
  options.join.job = "sim";
  options.join.host = fmt::format("host-{}", slot_);
  options.join.lane_threads = threads_;
  options.join.process = process();
  options.join.fingerprint.kernels = "same";
  options.heartbeat = around_.timing.heartbeat;
  options.seed = world_.draw();
  follower_.emplace(std::move(options), world_.now() + world_.between(1ms, 20ms));
  carry_out();
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
    death == Death::kProcess ? around_.coordinator.close(session_)
                             : around_.coordinator.vanish(session_);
  }
  session_ = 0;
  running_ = false;
  if (launcher_sees) around_.coordinator.send_exited(id(), process());
}

void Worker::kill_in_commit() { dies_in_commit_ = running_; }

void Worker::exit(const char* why) {
  world_.trace("{}: exits: {}", id(), why);
  kill(Death::kProcess, true);
  around_.exited(slot_);
}

void Worker::stop(Moment until) {
  if (!running_) return;
  world_.trace("{}: is suspended for {:.0f} ms", id(), seconds(until - world_.now()) * 1e3);
  stopped_until_ = until;
  if (group_ && formed_) group_->freeze(rank_, until);
}

void Worker::hang() {
  if (!running_) return;
  world_.trace("{}: hangs", id());
  hung_ = true;
}

void Worker::leave() {
  if (!running_ || follower_->leaving()) return;
  world_.trace("{}: is told to leave", id());
  follower_->leave(world_.now());
  carry_out();
}

// ---- The client's thread.

// What the Follower ordered, and what the worker's own thread may now be told.
void Worker::carry_out() {
  for (const FollowerAction& action : follower_->take_actions()) {
    std::visit([this](const auto& one) { carry_out(one); }, action);
    if (!running_) return;
  }
  schedule_tick();
  ask_next();
}

void Worker::schedule_tick() {
  const auto due = follower_->wake();
  if (!due || (tick_at_ && *tick_at_ <= *due && *tick_at_ > world_.now())) return;
  tick_at_ = std::max(*due, world_.now() + 1us);
  later(*tick_at_ - world_.now(), [this, when = *tick_at_] {
    if (tick_at_ != when) return;
    tick_at_.reset();
    follower_->tick(world_.now());
    give_up_silent_connection();
    carry_out();
  });
}

void Worker::carry_out(const Connect&) {
  later(world_.between(1ms, 5ms), [this] {
    session_ = around_.coordinator.connect(slot_, this);
    session_ != 0 ? follower_->connected(world_.now()) : follower_->disconnected(world_.now());
    carry_out();
  });
}

void Worker::carry_out(const Disconnect&) {
  if (session_ != 0) around_.coordinator.close(session_);
  session_ = 0;
}

void Worker::carry_out(const Send& send) {
  if (session_ == 0) return;
  FromWorker message = send.message;
  if (auto* beat = std::get_if<Heartbeat>(&message)) {
    if (world_.plant() == Plant::kSilentFailure) beat->broken = 0;
    if (world_.plant() == Plant::kNoSuspect) beat->suspect.clear();
    if (!beat->suspect.empty()) around_.witness.suspected(id(), beat->suspect);
    if (world_.plant() == Plant::kNeverWaiting && beat->activity == Activity::kWaiting) {
      beat->activity = Activity::kComputing;
    }
    if (world_.plant() == Plant::kSilentLeave && beat->activity == Activity::kLeft) {
      beat->activity = Activity::kIdle;
    }
  } else if (auto* join = std::get_if<JoinRequest>(&message)) {
    if (world_.plant() == Plant::kCountLate) {
      join->key.incarnation = life_;
      join->held = {};
    }
  }
  around_.coordinator.send(session_, std::move(message));
}

void Worker::carry_out(const Abort& abort) {
  if (world_.plant() == Plant::kNeverAbort && formed_) return;
  if (group_ && group_->roster().number == abort.roster) {
    world_.trace("{}: aborts its group at step {}: {}", id(), step(), abort.reason);
    ++around_.witness.tally.aborted;
    // The client's thread closes the connections even if the worker's own hangs.
    leave_group(Group::Going::kAbruptly);
  }
  work(0ns, [this, number = abort.roster] {
    if (forming_ && forming_->number == number) give_up_group(-1, "aborted");
  });
}

void Worker::carry_out(const AddressesReady& ready) {
  work(0ns, [this, ready] { arrive(ready); });
}

void Worker::carry_out(const ExitStuck& stuck) { exit(stuck.reason.c_str()); }

// gRPC's keepalive.
void Worker::give_up_silent_connection() {
  if (session_ == 0) return;
  if (world_.cut_until(slot_, kCoordinator) <= world_.now() + around_.timing.keepalive) return;
  around_.coordinator.close(session_);
  session_ = 0;
  follower_->disconnected(world_.now());
}

void Worker::on_break(SessionId session) {
  if (session != session_ || !running_) return;
  if (deferred([this, session] { on_break(session); })) return;
  world_.trace("{}: loses the coordinator", id());
  around_.coordinator.vanish(session_);
  session_ = 0;
  follower_->disconnected(world_.now());
  carry_out();
}

void Worker::on_message(SessionId session, const ToWorker& message) {
  if (session != session_ || !running_) return;
  // What comes in one connection stays in order, also over a suspension.
  inbox_.emplace_back(session, message);
  read_inbox();
}

void Worker::read_inbox() {
  if (deferred([this] { read_inbox(); })) return;
  while (!inbox_.empty() && running_) {
    const auto [from, message] = std::move(inbox_.front());
    inbox_.pop_front();
    if (from != session_) continue;
    if (const auto* diff = std::get_if<RosterDiff>(&message)) {
      around_.witness.handed(diff->number, diff->checksum);
    } else if (const auto* removed = std::get_if<Removed>(&message)) {
      world_.trace("{}: is told that it was removed: {}", id(), removed->reason);
    }
    follower_->received(world_.now(), message);
    carry_out();
  }
}

// ---- The worker's own thread.

// It waits in next(), which looks again whenever something has changed.
void Worker::ask_next() {
  if (asking_ || forming_) return;
  asking_ = true;
  work(0ns, [this] {
    asking_ = false;
    advance();
  });
}

void Worker::advance() {
  if (forming_) return;
  const Instruction instruction = follower_->next(world_.now());
  for (const FollowerAction& action : follower_->take_actions()) {
    std::visit([this](const auto& one) { carry_out(one); }, action);
  }
  using Kind = Instruction::Kind;
  switch (instruction.kind) {
    case Kind::kWait:
      break;
    case Kind::kForm:
      begin_forming(instruction.roster);
      break;
    case Kind::kRejoined:
      ++around_.witness.tally.rejoined;
      ask_next();
      break;
    case Kind::kReleased:
      world_.trace("{}: leaves", id());
      if (session_ != 0) around_.coordinator.close(session_);
      session_ = 0;
      running_ = false;
      return;
    case Kind::kFinished:
    case Kind::kStopped:
    case Kind::kRefused:
      around_.witness.violated(fmt::format("{} was sent away: {}", id(), instruction.reason));
      return;
    case Kind::kOrphaned:
      exit("there is no coordinator");
      return;
  }
  schedule_tick();
}

void Worker::begin_forming(const RosterPtr& roster) {
  forming_ = roster;
  formed_ = false;
  blob_ = fmt::format("{}/{}", slot_, world_.draw());
  work(world_.between(100us, 3ms), [this, roster] {
    if (forming_ != roster) return;
    follower_->offer(world_.now(), roster->number, std::string(kTrainers), blob_);
    carry_out();
  });
}

void Worker::arrive(const AddressesReady& ready) {
  if (!forming_ || forming_->number != ready.roster || group_) return;
  std::string all;
  std::vector<int> slots;
  for (const std::string& blob : *ready.blobs) {
    all += blob + " ";
    slots.push_back(std::stoi(blob));
  }
  const uint64_t key = hash64(all.data(), all.size(), ready.roster);
  auto& group = around_.meetings[key];
  if (!group) {
    group = std::make_shared<Group>(world_, around_.witness, forming_, slots, around_.lanes,
                                    around_.timing.silence);
  }
  group_ = group;
  rank_ = forming_->rank_of(follower_->key());
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
  operation_ = 0;
  phase_ = Phase::kAgreeing;
  follower_->formed(world_.now(), forming_->number);
  carry_out();
  if (group_) report();
}

void Worker::on_failed(int suspect, const std::string& why) {
  if (deferred([this, suspect, why, group = group_] {
        if (group_ == group) on_failed(suspect, why);
      })) {
    return;
  }
  if (!hung_ && group_) give_up_group(suspect, why);
}

void Worker::give_up_group(int suspect, const std::string& why) {
  const RosterPtr roster = forming_;
  std::string name;
  if (world_.plant() == Plant::kBlameClosed && suspect < 0 && group_) {
    suspect = (rank_ + 1) % group_->size();
  }
  if (suspect >= 0) name = roster->members[static_cast<size_t>(suspect)].key.id;
  if (group_) {
    ++around_.witness.tally.failed;
    world_.trace("{}: its group of roster {} failed at step {} ({}; suspect: {})", id(),
                 sequence_of(roster->number), step(), why, name.empty() ? "none" : name);
  }
  leave_group(Group::Going::kAbruptly);
  forming_ = nullptr;
  follower_->failed(world_.now(), roster->number, name, why);
  carry_out();
}

void Worker::leave_group(Group::Going going) {
  if (!group_) return;
  if (formed_ && (phase_ == Phase::kReducing || phase_ == Phase::kCommitting)) {
    if (going != Group::Going::kByPlan) ++around_.witness.tally.redone;
  }
  old_lanes_ = my_lanes();
  const auto group = std::exchange(group_, nullptr);
  formed_ = false;
  group->leave(rank_, going);
}

const std::vector<int32_t>& Worker::my_lanes() const {
  return group_->roster().members[static_cast<size_t>(rank_)].lanes;
}

}  // namespace muster::roster::simulation
