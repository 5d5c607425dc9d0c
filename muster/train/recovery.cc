#include "muster/train/recovery.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "muster/base/check.h"
#include "muster/base/fault_point.h"
#include "muster/base/hash.h"
#include "muster/train/transfer.h"

namespace muster::train {

using roster::Action;
using roster::Report;

roster::Report Recovery::report(uint64_t restorable) {
  auto& stepper = session_.stepper();
  Report mine;
  mine.has_state = has_state_;
  mine.restorable = restorable;
  if (!has_state_) return mine;
  mine.position = stepper.position();
  mine.holds_sums = stepper.holds_sums();
  if (const auto from = stepper.message_of()) {
    mine.has_message = true;
    mine.message_of = *from;
  }
  return mine;
}

Result<Recovery::Outcome> Recovery::run(comm::Group& group, uint64_t restorable,
                                        const Restore& restore, const comm::OpOptions& options) {
  const auto size = static_cast<size_t>(group.size());
  const auto rank = static_cast<size_t>(group.rank());
  std::vector<char> all(size * Report::kBytes);
  const auto mine = report(restorable).encode();
  MUSTER_CHECK(mine.size() == Report::kBytes, "a report of another size");
  std::ranges::copy(mine, all.begin() + static_cast<std::ptrdiff_t>(rank * Report::kBytes));
  {
    const WaitingForPeers waiting(session_.vitals());
    MUSTER_RETURN_IF_ERROR(group.allgather(std::span(all), options));
  }
  fault_point(FaultPoint::kRecovery);
  std::vector<Report> reports;
  for (size_t r = 0; r < size; ++r) {
    MUSTER_TRY(const auto one, Report::decode({all.data() + r * Report::kBytes, Report::kBytes}));
    reports.push_back(one);
  }
  Outcome outcome;
  MUSTER_TRY(outcome.agreement, roster::agree(reports));
  const auto& agreement = outcome.agreement;

  if (agreement.actions[rank] == Action::kRestore) {
    has_state_ = false;
    session_.stepper().forget();
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
    const WaitingForPeers waiting(session_.vitals());
    MUSTER_RETURN_IF_ERROR(roll_forward(group, agreement, outcome, options));
    MUSTER_RETURN_IF_ERROR(transfer(group, agreement, outcome, options));
  }
  const auto position = session_.stepper().position();
  // What a checkpoint holds beyond its step (it may have been evaluated there) nobody knew before.
  if (agreement.any(Action::kRestore)) outcome.agreement.position.attempt = position.attempt;
  MUSTER_CHECK(position == agreement.position,
               "recovery ended at " + position.text() + ", not at " + agreement.position.text());
  return outcome;
}

Status Recovery::roll_forward(comm::Group& group, const roster::Agreement& agreement,
                              Outcome& outcome, const comm::OpOptions& options) {
  if (agreement.message_from < 0) return {};
  auto& stepper = session_.stepper();
  // A copy: the worker that has the message must keep its own as it is.
  CommitMessage message = stepper.message();
  MUSTER_RETURN_IF_ERROR(group.broadcast(message.bytes(), agreement.message_from, options));
  if (agreement.actions[static_cast<size_t>(group.rank())] != Action::kRollForward) return {};
  stepper.message() = std::move(message);
  MUSTER_TRY(const auto report, stepper.apply(stepper.message()));
  outcome.rolled = report.has_value();
  return {};
}

Status Recovery::transfer(comm::Group& group, const roster::Agreement& agreement, Outcome& outcome,
                          const comm::OpOptions& options) {
  if (!agreement.any(Action::kReceive)) return {};
  const auto bytes = session_.arena().bytes();
  const int rank = group.rank();
  const bool receives = agreement.actions[static_cast<size_t>(rank)] == Action::kReceive;
  if (receives) {
    has_state_ = false;  // until all of it is here
    session_.stepper().forget();
  }
  MUSTER_TRY(outcome.received, transfer_state(bytes, group, agreement, session_.vitals(), options));
  const bool source = std::ranges::binary_search(agreement.sources, rank);
  std::array<Hash128, 1> hash{};
  session_.vitals().note_progress();
  const auto own = source || receives ? hash128(bytes) : Hash128{};
  session_.vitals().note_progress();
  if (rank == agreement.sources.front()) hash[0] = own;
  MUSTER_RETURN_IF_ERROR(
      group.broadcast(std::span<Hash128>(hash), agreement.sources.front(), options));
  if (!receives) return {};
  if (own != hash[0]) {
    return Error(ErrorKind::kInternal,
                 "the state received at {} has the hash {}, that of {} has {}: the workers do not "
                 "agree, or the network corrupts data; start again from the last checkpoint",
                 agreement.position.text(), own.hex(), group.describe(agreement.sources.front()),
                 hash[0].hex());
  }
  has_state_ = true;
  return {};
}

}  // namespace muster::train
