#include "muster/train/step/own_weights.h"

#include <array>

namespace muster::train {

void load_own(Arena& arena, size_t kept, std::vector<float>& weights) {
  const auto common = arena.weights();
  const auto away = arena.optimizer_state(kept);
  weights.resize(away.size());
  for (size_t i = 0; i < away.size(); ++i) weights[i] = common[i] + away[i];
}

void take_mean_of_own(Arena& arena, size_t first, size_t replicas, size_t block) {
  const auto& where = arena.layout().blocks()[block];
  const auto away = [&](size_t r) { return exact::part(arena.optimizer_state(first + r), where); };
  const auto weights = exact::part(arena.weights(), where);
  std::array<float, exact::kBlockSize> mean = {};
  const float share = 1.0f / static_cast<float>(replicas);
  for (size_t r = 0; r < replicas; ++r) {
    const auto own = away(r);
    for (size_t i = 0; i < where.size; ++i) mean[i] += share * own[i];
  }
  for (size_t i = 0; i < where.size; ++i) weights[i] += mean[i];
  for (size_t r = 0; r < replicas; ++r) {
    const auto own = away(r);
    for (size_t i = 0; i < where.size; ++i) own[i] -= mean[i];
  }
}

}  // namespace muster::train
