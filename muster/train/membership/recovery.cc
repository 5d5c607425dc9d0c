#include "muster/train/membership/recovery.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "muster/base/check.h"
#include "muster/base/fault_point.h"
#include "muster/base/hash.h"
#include "muster/train/membership/transfer.h"

namespace muster::train {

using roster::Action;
using roster::StateReport;

void Recovery::roll_back(const roster::Rollback& rollback) {
  if (rollback <= rollback_) return;
  rollback_ = rollback;
  has_state_ = false;
  state_.forget();
}

roster::StateReport Recovery::report(const Restorable& restorable) {
  roll_back(restorable.rollback);
  if (!state_.is_intact()) has_state_ = false;
  StateReport mine;
  mine.rollback = rollback_;
  mine.has_state = has_state_;
  mine.restorable = restorable.step;
  if (!has_state_) return mine;
  mine.position = state_.position();
  mine.holds_sums = state_.holds_sums();
  if (const auto from = state_.message_of()) {
    mine.has_message = true;
    mine.message_of = *from;
  }
  return mine;
}

Result<Recovery::Outcome> Recovery::run(comm::Group& group, const Restorable& restorable,
                                        const Restore& restore, const comm::OpOptions& options) {
  const auto size = static_cast<size_t>(group.size());
  const auto rank = static_cast<size_t>(group.rank());
  std::vector<char> all(size * StateReport::kBytes);
  const auto mine = report(restorable).encode();
  MUSTER_CHECK(mine.size() == StateReport::kBytes, "a report of another size");
  std::ranges::copy(mine, all.begin() + static_cast<std::ptrdiff_t>(rank * StateReport::kBytes));
  {
    const WaitingForPeers waiting(vitals_);
    MUSTER_RETURN_IF_ERROR(group.allgather(std::span(all), options));
  }
  fault_point(FaultPoint::kRecovery);
  std::vector<StateReport> reports;
  for (size_t r = 0; r < size; ++r) {
    MUSTER_TRY(const auto one,
               StateReport::decode({all.data() + r * StateReport::kBytes, StateReport::kBytes}));
    reports.push_back(one);
  }
  Outcome outcome;
  outcome.agreement = roster::agree(reports);
  const auto& agreement = outcome.agreement;
  roll_back(agreement.rollback);

  if (agreement.any(Action::kRestore)) {
    // All give up their states before one loads. A worker that was suspended finds the reports of
    // members that have left since, and may see a checkpoint that they wrote after that. If it
    // loaded that alone, it would put the rows on parameter servers back, and end their era.
    has_state_ = false;
    state_.forget();
    const WaitingForPeers waiting(vitals_);
    MUSTER_RETURN_IF_ERROR(group.barrier(options));
  }
  if (agreement.actions[rank] == Action::kRestore) {
    MUSTER_TRY(const bool restored, restore(agreement.position.step));
    if (!restored) {
      const auto why =
          fmt::format("the checkpoint of step {} cannot be read", agreement.position.step);
      group.abort(why);
      return Error(ErrorKind::kCheckpoint, "{}", why);
    }
    has_state_ = true;
  }
  {
    const WaitingForPeers waiting(vitals_);
    MUSTER_RETURN_IF_ERROR(roll_forward(group, agreement, outcome, options));
    MUSTER_RETURN_IF_ERROR(transfer(group, agreement, outcome, options));
  }
  MUSTER_RETURN_IF_ERROR(compare(group, agreement, outcome, options));
  if (outcome.differs) return outcome;
  const auto position = state_.position();
  // What a checkpoint holds beyond its step (it may have been evaluated there) nobody knew before.
  if (agreement.any(Action::kRestore)) outcome.agreement.position.attempt = position.attempt;
  MUSTER_CHECK(position == agreement.position,
               "recovery ended at " + position.text() + ", not at " + agreement.position.text());
  return outcome;
}

Status Recovery::roll_forward(comm::Group& group, const roster::Agreement& agreement,
                              Outcome& outcome, const comm::OpOptions& options) {
  if (agreement.message_from < 0) return {};
  const auto own = state_.message_bytes();
  // A copy: the worker that has the message must keep its own as it is.
  std::vector<uint8_t> message(own.begin(), own.end());
  MUSTER_RETURN_IF_ERROR(
      group.broadcast(std::span<uint8_t>(message), agreement.message_from, options));
  if (agreement.actions[static_cast<size_t>(group.rank())] != Action::kRollForward) return {};
  MUSTER_TRY(outcome.rolled, state_.apply_message(message));
  return {};
}

Status Recovery::transfer(comm::Group& group, const roster::Agreement& agreement, Outcome& outcome,
                          const comm::OpOptions& options) {
  if (!agreement.any(Action::kReceive)) return {};
  if (agreement.actions[static_cast<size_t>(group.rank())] == Action::kReceive) {
    has_state_ = false;  // until all of it is here
    state_.forget();
  }
  MUSTER_TRY(outcome.received, transfer_state(state_.bytes(), group, agreement, vitals_, options));
  return {};
}

// A state that was restored or received is compared with everybody's, all of it. The first weights,
// for example, are made by each worker for itself.
Status Recovery::compare(comm::Group& group, const roster::Agreement& agreement, Outcome& outcome,
                         const comm::OpOptions& options) {
  const bool receives = agreement.any(Action::kReceive);
  if (!receives && !agreement.any(Action::kRestore)) return {};
  std::vector<bool> voters(static_cast<size_t>(group.size()), false);
  for (const int source : agreement.sources) voters[static_cast<size_t>(source)] = true;
  if (agreement.actions[static_cast<size_t>(group.rank())] == Action::kReceive) {
    auditor_.took_over();
  }
  MUSTER_TRY(outcome.differs, auditor_.compare_states(group, options, voters));
  if (outcome.differs) {
    // States that were only just restored nobody has used.
    outcome.differs->contained |= agreement.any(Action::kRestore);
    return {};
  }
  has_state_ = true;
  state_.was_replaced();
  return {};
}

}  // namespace muster::train
