// What a virtual worker does inside a group: agree, catch up, then step after step.
#include <algorithm>

#include "muster/roster/lanes.h"
#include "muster/roster/simulation/worker.h"

namespace muster::roster::simulation {

using namespace std::chrono_literals;

void Worker::enter(const Offering& offering, Duration takes) {
  activity_ = Activity::kWaiting;
  group_->enter(rank_, operation_, offering, takes, around_.timing.operation);
}

void Worker::on_complete(size_t operation) {
  if (hung_ || !group_) return;
  // A stopped process looks at what has arrived when it goes on.
  if (stopped_until_ > world_.now()) {
    world_.at(stopped_until_, [this, life = life_, group = group_, operation] {
      if (running_ && life == life_ && group_ == group) on_complete(operation);
    });
    return;
  }
  ++progress_;
  const Operation& result = group_->operation(operation);
  ++operation_;
  switch (phase_) {
    case Phase::kAgreeing: {
      auto agreement = agree(result.reports);
      if (!agreement.ok()) {
        around_.witness.violated(agreement.error().message());
        return;
      }
      agreement_ = std::move(*agreement);
      if (world_.plant() == Plant::kSkipAgreement && has_state_) {
        std::ranges::fill(agreement_.actions, Action::kGoOn);
      }
      agreed();
      break;
    }
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
    ++around_.witness.tally.restored;
    if (has_state_) ++around_.witness.tally.outdated;
    position_ = agreement_.position;
    claim(around_.disk.states.at(position_.step));
  } else if (action == Action::kReceive) {
    has_state_ = false;
    if (world_.plant() == Plant::kHalfState) {
      has_state_ = true;
      position_ = agreement_.position;
    }
  }
  roll();
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
  if (action == Action::kReceive) activity_ = Activity::kReceiving;
}

void Worker::begin_step() {
  phase_ = Phase::kReducing;
  activity_ = Activity::kComputing;
  holds_sums_ = false;  // the buffer is used again
  const double noise = 0.95 + 0.001 * static_cast<double>(world_.below(100));
  const double time = lanes_seconds(my_lanes().size(), threads_, seconds(lane_time_)) * noise;
  const auto takes = 1ms + Duration{static_cast<int64_t>(time * 1e9)};
  work(takes, [this, group = group_, at = operation_] {
    if (group_ == group && operation_ == at) reduce();
  });
}

void Worker::reduce() {
  ++progress_;
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
  CommitMessage message;
  message.of = position_;
  for (const int32_t lane : my_lanes()) message.overflow |= overflows(position_, lane);
  message.newer = commit_byte(group_->roster(), newest_);
  offering.message = message;
  if (world_.plant() == Plant::kDropCommitRule)
    apply(CommitMessage{.of = position_, .overflow = message.overflow});
  enter(offering);
}

void Worker::apply(const CommitMessage& message) {
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
// there when its writer is out. A hang of the worker's own thread does not hold it up.
void Worker::save() {
  later(world_.between(1ms, around_.timing.writing), [this, step = position_.step, state = state_] {
    around_.disk.states.emplace(step, state);
  });
}

void Worker::committed(const CommitMessage& message) {
  if (world_.plant() != Plant::kDropCommitRule) apply(message);
  if (rank_ == 0 && position_.attempt == 0 &&
      position_.step % around_.timing.checkpoint_every == 0) {
    save();
  }
  uint8_t newer = message.newer;
  if (world_.plant() == Plant::kSwitchAlone) newer = commit_byte(group_->roster(), newest_);
  switch (after_commit(newer, group_->roster(), newest_)) {
    case AfterCommit::kGoOn:
      begin_step();
      return;
    case AfterCommit::kSwitch:
    case AfterCommit::kWait:
      break;
  }
  ++around_.witness.tally.switched;
  world_.trace("{}: leaves roster {} by plan after step {}", id(),
               sequence_of(group_->roster().number), step());
  const RosterNumber left = group_->roster().number;
  leave_group(Group::Going::kByPlan);
  activity_ = Activity::kIdle;
  work(around_.timing.form, [this, left] {
    if (newest_.number == left && !group_) report_broken(left);
  });
  advance();
}

}  // namespace muster::roster::simulation
