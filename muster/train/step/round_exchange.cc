#include "muster/train/step/round_exchange.h"

#include "muster/sync/recipe.h"
#include "muster/train/step/gossip_rounds.h"
#include "muster/train/step/gradient_rounds.h"
#include "muster/train/step/sparse_rounds.h"
#include "muster/train/step/streaming_rounds.h"

namespace muster::train {

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
  if (sync::sends_gradients(job.sync.strategy)) {
    return std::make_unique<GradientRounds>(job, parts, first_kept);
  }
  return nullptr;
}

}  // namespace muster::train
