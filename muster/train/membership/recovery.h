// What the members of a new group do first: come to one position, with one state.
//
// Who is where, and who gets what from whom, is decided by roster::agree() from everybody's report;
// this carries it out. Those who missed a commit but hold its sums take the commit message from one
// who saw it and apply it; those without a state receive the arena from those who have it
// (transfer.h), and check its hash. See muster/roster/agree.h for why this never changes bits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "muster/base/result.h"
#include "muster/comm/group.h"
#include "muster/roster/agree.h"
#include "muster/train/audit/auditor.h"
#include "muster/train/membership/vitals.h"
#include "muster/train/state/state.h"

namespace muster::train {

class Recovery {
 public:
  // Where the state of a job comes from if no member has it: loads the checkpoint of that step into
  // the arena, or makes the initial state for step 0. False: the checkpoint cannot be read
  // (damaged, or deleted since it was listed); the caller will not offer it again.
  using Restore = std::function<Result<bool>(uint64_t step)>;

  // All must outlive it.
  Recovery(State& state, Auditor& auditor, const Vitals& vitals)
      : state_(state), auditor_(auditor), vitals_(vitals) {}

  // Whether there is a state of the job that others may go on from. A worker that begins
  // has none: it restores or receives one.
  bool has_state() const { return has_state_; }
  void lose_state() { has_state_ = false; }

  // What the last rollback that this worker knows of made invalid is never offered to others.
  const roster::Rollback& rollback() const { return rollback_; }
  // Gives up the state because of it, if it is newer than what is known.
  void roll_back(const roster::Rollback& rollback);

  // The newest step that can be restored, and the last rollback, as far as the caller can tell.
  struct Restorable {
    uint64_t step = 0;
    roster::Rollback rollback;
  };
  struct Outcome {
    roster::Agreement agreement;
    // The states that members brought, restored or received are not the same.
    std::optional<Verdict> differs;
    bool rolled = false;    // this worker committed a step by rolling forward
    uint64_t received = 0;  // bytes
  };
  // Collective over the group. An error of the group leaves a state that can be brought into the
  // next group; so does a transfer that was cut short, which then counts as none. If a checkpoint
  // could not be read the group is aborted, so that all members try again with another.
  Result<Outcome> run(comm::Group& group, const Restorable& restorable, const Restore& restore,
                      const comm::OpOptions& options);

 private:
  roster::StateReport report(const Restorable& restorable);
  Status roll_forward(comm::Group& group, const roster::Agreement& agreement, Outcome& outcome,
                      const comm::OpOptions& options);
  Status transfer(comm::Group& group, const roster::Agreement& agreement, Outcome& outcome,
                  const comm::OpOptions& options);
  Status compare(comm::Group& group, const roster::Agreement& agreement, Outcome& outcome,
                 const comm::OpOptions& options);

  State& state_;
  Auditor& auditor_;
  const Vitals& vitals_;
  bool has_state_ = false;
  roster::Rollback rollback_;
};

}  // namespace muster::train
