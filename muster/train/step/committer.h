// The commit of a strategy: the allreduce of its message (commit.h), and the last message that
// succeeded, which a worker that missed it may ask for.
//
// One thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/comm/group.h"
#include "muster/train/audit/auditor.h"
#include "muster/train/membership/vitals.h"
#include "muster/train/step/commit.h"

namespace muster::train {

class Committer {
 public:
  // `records`: LaneResults in a message.
  Committer(size_t blocks, int records) : message_(blocks, records), draft_(message_) {}

  // An empty message, for this worker to fill in. The last one stays until the exchange succeeds.
  CommitMessage& begin();
  // Collective. With these flags and, if there is an audit, the hash of the state. False: the
  // states of the workers differ, which the auditor has been told, and this commit leads nowhere.
  Result<bool> exchange(const CommitFlags& flags, Auditor& auditor, comm::Group& group,
                        Duration timeout, const Vitals& vitals);

  // The last that succeeded here, or was taken over.
  const CommitMessage& message() const { return message_; }
  // The message of a commit that this worker missed.
  void take_over(std::span<const uint8_t> bytes);

 private:
  CommitMessage message_;
  CommitMessage draft_;
};

}  // namespace muster::train
