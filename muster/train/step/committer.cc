#include "muster/train/step/committer.h"

#include <algorithm>
#include <utility>

#include "muster/base/check.h"

namespace muster::train {

CommitMessage& Committer::begin() {
  draft_.clear();
  return draft_;
}

Result<bool> Committer::exchange(const CommitFlags& flags, Auditor& auditor, comm::Group& group,
                                 Duration timeout, const Vitals& vitals) {
  draft_.set_flags(flags);
  if (const auto hash = auditor.hash_state()) draft_.set_state_hash(*hash);
  const WaitingForPeers waiting(vitals);
  MUSTER_RETURN_IF_ERROR(group.allreduce_max(draft_.bytes(), {.timeout = timeout}));
  std::swap(draft_, message_);
  if (message_.states_agree()) return true;
  auditor.states_differ();
  return false;
}

void Committer::take_over(std::span<const uint8_t> bytes) {
  MUSTER_CHECK(bytes.size() == message_.bytes().size(), "a commit message of another job");
  std::ranges::copy(bytes, message_.bytes().begin());
}

}  // namespace muster::train
