#include "muster/train/step/round_exchange.h"

#include <string>
#include <string_view>
#include <vector>

#include "muster/sync/recipe.h"
#include "muster/train/step/desloc_rounds.h"
#include "muster/train/step/gossip_rounds.h"
#include "muster/train/step/gradient_rounds.h"
#include "muster/train/step/sparse_rounds.h"
#include "muster/train/step/sparta_rounds.h"
#include "muster/train/step/streaming_rounds.h"

namespace muster::train {

Result<bool> agree(bool finite, uint64_t common, Auditor* auditor,
                   const RoundExchange::Peers& peers) {
  struct Notice {
    uint64_t common;
    uint64_t finite;
  };
  std::vector<Notice> notices(static_cast<size_t>(peers.group.size()));
  notices[static_cast<size_t>(peers.group.rank())] = {common, finite ? 1u : 0u};
  {
    const WaitingForPeers waiting(peers.vitals);
    MUSTER_RETURN_IF_ERROR(peers.group.allgather(std::span(notices), {.timeout = peers.timeout}));
  }
  bool all = true;
  for (const Notice& notice : notices) {
    if (notice.common != notices[0].common) return explain_difference(auditor, peers);
    all &= notice.finite != 0;
  }
  return all;
}

Error explain_difference(Auditor* auditor, const RoundExchange::Peers& peers) {
  if (auditor != nullptr) {
    if (auto compared = auditor->check_not_finite(); !compared.ok()) return compared.error();
    if (auto found = auditor->check(); !found.ok()) return found.error();
  }
  const std::string_view what =
      "the workers have different weights at the end of a round: a bit of memory was flipped "
      "somewhere";
  peers.group.abort(std::string(what));
  return Error(ErrorKind::kInternal, "{}", what);
}

std::unique_ptr<RoundExchange> make_round_exchange(const config::Job& job,
                                                   const StrategyParts& parts, size_t first_kept) {
  if (job.sync.strategy == "sparseloco") {
    return std::make_unique<SparseRounds>(job, parts, first_kept);
  }
  if (job.sync.strategy == "gossip") {
    return std::make_unique<GossipRounds>(job, parts, first_kept);
  }
  if (job.sync.strategy == "streaming") {
    return std::make_unique<StreamingRounds>(job, parts, first_kept);
  }
  if (job.sync.strategy == "sparta") {
    return std::make_unique<SpartaRounds>(job, parts, first_kept);
  }
  if (job.sync.strategy == "desloc") return std::make_unique<DeslocRounds>(job, parts);
  if (sync::sends_gradients(job.sync.strategy)) {
    return std::make_unique<GradientRounds>(job, parts, first_kept);
  }
  return nullptr;
}

}  // namespace muster::train
