// What a virtual worker does inside a group: reconcile the state, then step after step.
#include <algorithm>

#include "muster/roster/lanes.h"
#include "muster/roster/simulation/worker.h"

namespace muster::roster::simulation {

using namespace std::chrono_literals;

void Worker::set_activity(Activity activity) { follower_->set_activity(world_.now(), activity); }

void Worker::enter(const Offering& offering, Duration takes) {
  set_activity(Activity::kWaiting);
  group_->enter(rank_, operation_, offering, takes);
}

void Worker::toil(Duration takes, std::function<void()> then) {
  set_activity(Activity::kComputing);
  static constexpr Duration kPart = 10s;
  if (world_.plant() != Plant::kSilentWork) follower_->progress(world_.now());
  if (takes <= kPart) {
    work(takes, std::move(then));
  } else {
    work(kPart, [this, group = group_, takes, then = std::move(then)] {
      if (group_ == group) toil(takes - kPart, then);
    });
  }
}

void Worker::report() {
  Offering offering;
  StateReport& report = offering.report;
  report.has_state = has_state_;
  report.position = position_;
  report.holds_sums = holds_sums_;
  if (world_.plant() == Plant::kRollWithoutSums && has_state_) report.holds_sums = true;
  report.has_message = has_message_;
  report.message_of = message_.of;
  saved_ = 0;
  for (const auto& [step, state] : around_.disk.states) {
    if (!unreadable_.contains(step)) saved_ = std::max(saved_, step);
  }
  report.restorable = saved_;
  if (world_.plant() == Plant::kForgetCheckpoints && has_state_) report.restorable = 0;
  enter(offering);
}

void Worker::on_complete(size_t operation) {
  if (hung_ || !group_) return;
  // A suspended process looks at what has arrived when it continues.
  if (stopped_until_ > world_.now()) {
    world_.at(stopped_until_, [this, life = life_, group = group_, operation] {
      if (running_ && life == life_ && group_ == group) on_complete(operation);
    });
    return;
  }
  follower_->progress(world_.now());
  const Operation& result = group_->operation(operation);
  ++operation_;
  switch (phase_) {
    case Phase::kAgreeing:
      agreement_ = agree(result.reports);
      if (world_.plant() == Plant::kSkipAgreement && has_state_) {
        std::ranges::fill(agreement_.actions, Action::kGoOn);
      }
      agreed();
      break;
    case Phase::kRolling:
      if (agreement_.actions[static_cast<size_t>(rank_)] == Action::kRollForward) {
        ++around_.witness.tally.rolled;
        apply(result.message);
      }
      transfer();
      break;
    case Phase::kTransferring:
      if (agreement_.actions[static_cast<size_t>(rank_)] == Action::kReceive) {
        ++around_.witness.tally.received;
        position_ = agreement_.position;
        claim(result.state);
      }
      begin_step();
      break;
    case Phase::kReducing:
      reduced(result.sum);
      break;
    case Phase::kCommitting:
      committed(result.message);
      break;
  }
}

void Worker::agreed() {
  const Action action = agreement_.actions[static_cast<size_t>(rank_)];
  world_.trace("{}: rank {} of roster {}: {}; it: {}", id(), rank_,
               sequence_of(group_->roster().number), agreement_.reason, action_name(action));
  if (agreement_.position.step < saved_) {
    around_.witness.violated(fmt::format("roster {} goes on from {}, but step {} was saved",
                                         sequence_of(group_->roster().number),
                                         agreement_.position.text(), saved_));
  }
  if (action == Action::kRestore) {
    restore();
    return;
  }
  if (action == Action::kReceive) {
    has_state_ = false;
    if (world_.plant() == Plant::kHalfState) {
      has_state_ = true;
      position_ = agreement_.position;
    }
  }
  roll();
}

void Worker::restore() {
  if (has_state_) ++around_.witness.tally.outdated;
  has_state_ = false;
  const bool slow = around_.disk.slow_until > world_.now();
  const Duration takes = slow ? world_.between(0s, around_.timing.slow_disk) : 1ms;
  if (slow) ++around_.witness.tally.slow_restores;
  toil(takes, [this, group = group_] {
    if (group_ != group) return;
    const auto found = around_.disk.states.find(agreement_.position.step);
    if (found == around_.disk.states.end()) {
      // It was deleted since: without a state, all try again with what is left.
      ++around_.witness.tally.vanished;
      unreadable_.insert(agreement_.position.step);
      give_up_group(-1, "the checkpoint is gone");
      return;
    }
    ++around_.witness.tally.restored;
    position_ = agreement_.position;
    claim(found->second);
    roll();
  });
}

void Worker::claim(uint64_t state) {
  state_ = state;
  has_state_ = true;
  holds_sums_ = has_message_ = false;
  around_.witness.has(id(), position_, state_);
}

void Worker::roll() {
  if (!agreement_.any(Action::kRollForward)) {
    transfer();
    return;
  }
  phase_ = Phase::kRolling;
  Offering offering;
  if (rank_ == agreement_.message_from) offering.message = message_;
  enter(offering);
}

void Worker::transfer() {
  if (!agreement_.any(Action::kReceive)) {
    begin_step();
    return;
  }
  phase_ = Phase::kTransferring;
  Offering offering;
  const Action action = agreement_.actions[static_cast<size_t>(rank_)];
  if (action != Action::kReceive) offering.state = state_;
  enter(offering, world_.between(0ns, around_.timing.transfer));
}

void Worker::begin_step() {
  phase_ = Phase::kReducing;
  holds_sums_ = false;  // the buffer is used again
  const double noise = 0.95 + 0.001 * static_cast<double>(world_.below(100));
  const double time = lanes_seconds(my_lanes().size(), threads_, seconds(lane_time_)) * noise;
  const auto takes = 1ms + Duration{static_cast<int64_t>(time * 1e9)};
  // Now and then an evaluation comes first: some wait for others longer than hang_timeout.
  const bool evaluates =
      around_.timing.evaluations && position_.step % 16 == 5 && position_.attempt == 0;
  if (evaluates) ++around_.witness.tally.evaluations;
  const Duration evaluation = !evaluates ? 0s : rank_ % 2 == 0 ? 20s : 90s;
  toil(takes + evaluation, [this, group = group_, at = operation_] {
    if (group_ == group && operation_ == at) reduce();
  });
}

void Worker::reduce() {
  follower_->progress(world_.now());
  const bool old = world_.plant() == Plant::kOldLanes && !old_lanes_.empty();
  const std::vector<int32_t>& lanes = old ? old_lanes_ : my_lanes();
  Offering offering;
  offering.position = position_;
  offering.lanes = &lanes;
  for (const int32_t lane : lanes) offering.sum += contribution(position_, lane);
  sums_ = offering.sum;  // what is there until all of it is
  enter(offering);
}

void Worker::reduced(uint64_t sum) {
  sums_ = sum;
  holds_sums_ = true;
  phase_ = Phase::kCommitting;
  Offering offering;
  VirtualCommit message;
  message.of = position_;
  for (const int32_t lane : my_lanes()) message.overflow |= overflows(position_, lane);
  message.newer = follower_->commit_byte();
  offering.message = message;
  if (world_.plant() == Plant::kDropCommitRule)
    apply(VirtualCommit{.of = position_, .overflow = message.overflow});
  enter(offering);
  if (dies_in_commit_) {
    later(world_.between(0ns, 3ms), [this] {
      kill(Death::kProcess, true);
      around_.exited(slot_);
    });
  }
}

void Worker::apply(const VirtualCommit& message) {
  message_ = message;
  has_message_ = true;
  holds_sums_ = false;
  if (message.overflow) {
    ++around_.witness.tally.overflows;
    ++position_.attempt;
    return;
  }
  state_ = applied(state_, sums_);
  position_ = {.step = position_.step + 1, .attempt = 0};
  around_.witness.has(id(), position_, state_);
}

// A copy is made at the step boundary and written behind: it may be lost with its writer, or be
// there when its writer was removed. A hang of the worker's own thread does not hold it up.
void Worker::save() {
  const bool slow = around_.disk.slow_until > world_.now();
  const Duration longest = slow ? around_.timing.slow_disk : around_.timing.writing;
  later(world_.between(1ms, longest), [this, step = position_.step, state = state_] {
    around_.disk.states.emplace(step, state);
  });
}

void Worker::committed(const VirtualCommit& message) {
  if (world_.plant() != Plant::kDropCommitRule) apply(message);
  if (rank_ == 0 && position_.attempt == 0 &&
      position_.step % around_.timing.checkpoint_every == 0) {
    save();
  }
  uint8_t newer = message.newer;
  if (world_.plant() == Plant::kSwitchAlone) newer = follower_->commit_byte();
  const double lane_seconds = position_.step > 0 ? seconds(lane_time_) : 0;
  if (!follower_->committed(world_.now(), position_.step, lane_seconds, newer)) {
    begin_step();
    return;
  }
  ++around_.witness.tally.switched;
  world_.trace("{}: leaves roster {} by plan after step {}", id(),
               sequence_of(group_->roster().number), step());
  leave_group(Group::Going::kByPlan);
  forming_ = nullptr;
  carry_out();
}

}  // namespace muster::roster::simulation
