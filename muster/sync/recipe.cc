#include "muster/sync/recipe.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/random.h"

namespace muster::sync {

bool has_rounds(std::string_view strategy) { return strategy != "lockstep" && strategy != "auto"; }

bool is_periodic(std::string_view strategy) {
  return has_rounds(strategy) && !is_on_servers(strategy);
}

Recipe recipe_of(const config::SyncOptions& sync) {
  Recipe recipe;
  if (sync.strategy == "bmuf") {
    recipe.momentum = 1 - 1 / static_cast<double>(sync.replicas);
  } else if (sync.strategy == "diloco" || sync.strategy == "streaming") {
    recipe = {.lr = 0.7, .momentum = 0.9, .nesterov = true};
  } else if (sync.strategy == "muloco") {
    recipe = {.lr = 0.7, .momentum = 0.6, .nesterov = true};
  } else if (sync.strategy == "easgd" || config::is_elastic(sync)) {
    recipe = {.lr = 0.9, .elastic = true};
  } else if (sync.strategy == "gossip") {
    recipe = {.lr = 0.7, .momentum = 0.5};
  } else {
    // Those with a merge of their own, and average.
    MUSTER_CHECK(sync.strategy == "average" || sync.strategy == "local-then-lockstep" ||
                     commits_several_rounds(sync.strategy),
                 "a strategy without a recipe");
  }
  if (sync.outer.lr >= 0) recipe.lr = sync.outer.lr;
  if (sync.outer.momentum >= 0) recipe.momentum = sync.outer.momentum;
  return recipe;
}

config::SyncOptions lockstep_of(const config::SyncOptions& sync) {
  config::SyncOptions lockstep;
  lockstep.bucket = sync.bucket;
  lockstep.reduction = sync.reduction;
  lockstep.rounding = sync.rounding;
  return lockstep;
}

int64_t periodic_steps(const config::SyncOptions& sync, int64_t total) {
  if (sync.strategy != "local-then-lockstep") return total;
  return std::llround(static_cast<double>(total) * sync.local);
}

std::vector<std::string> kept_by_all(std::string_view strategy) {
  if (strategy == "powersgd") return {"right_factor"};
  if (strategy == "streaming") return {"outer_momentum"};
  return {};
}

std::vector<std::string> kept_by_replicas(std::string_view strategy) {
  if (sends_gradients(strategy)) return {"error"};
  if (strategy == "sparseloco") return {"error"};
  if (strategy == "gossip") return {"replica", "momentum"};
  if (strategy == "streaming" || strategy == "sparta") return {"replica"};
  return {};
}

int64_t state_bits(const config::SyncOptions& sync) { return std::max<int64_t>(sync.bits, 8); }

int64_t kept_bits(const config::SyncOptions& sync) {
  const bool weights =
      sync.strategy == "gossip" || sync.strategy == "streaming" || sync.strategy == "sparta";
  return weights ? state_bits(sync) : 8;
}

void outer_step(const Recipe& recipe, std::span<const float> mean, std::span<float> momentum,
                std::span<float> weights) {
  const auto lr = static_cast<float>(recipe.lr);
  const auto keep = static_cast<float>(recipe.momentum);
  if (momentum.empty()) {
    for (size_t i = 0; i < mean.size(); ++i) weights[i] -= lr * mean[i];
    return;
  }
  for (size_t i = 0; i < mean.size(); ++i) {
    momentum[i] = keep * momentum[i] + mean[i];
    weights[i] -= lr * (recipe.nesterov ? mean[i] + keep * momentum[i] : momentum[i]);
  }
}

std::vector<Pair> pairs_of(uint64_t seed, int64_t round, int replicas) {
  std::vector<int> order(static_cast<size_t>(replicas));
  std::iota(order.begin(), order.end(), 0);
  RandomStream random(seed, Purpose::kGossip, static_cast<uint64_t>(round));
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  std::vector<Pair> pairs;
  for (size_t i = 0; i < order.size(); i += 2) {
    pairs.push_back({order[i], order[std::min(i + 1, order.size() - 1)]});
  }
  return pairs;
}

int64_t units_of(const config::Job& job) {
  if (is_periodic(job.sync.strategy)) return job.sync.replicas;
  return job.sync.lane_groups > 0 ? job.sync.lane_groups : job.lanes;
}

int lanes_per_unit(const config::Job& job) { return static_cast<int>(job.lanes / units_of(job)); }

std::string_view unit_name(const config::Job& job) {
  if (is_periodic(job.sync.strategy)) return "replicas";
  return units_of(job) == job.lanes ? "lanes" : "groups of lanes";
}

std::vector<int> lanes_of(const config::Job& job, std::span<const int> units) {
  const int each = lanes_per_unit(job);
  std::vector<int> lanes;
  for (const int unit : units) {
    for (int i = 0; i < each; ++i) lanes.push_back(unit * each + i);
  }
  return lanes;
}

bool averages_inner_state(const config::Job& job) {
  if (sends_gradients(job.sync.strategy)) return false;  // all have the same
  // What they are about; and lockstep goes on with the state of the replicas.
  if (job.sync.strategy == "desloc" || job.sync.strategy == "local-then-lockstep") return true;
  if (job.sync.inner_state == "auto") return job.optimizer.kind != "sgd";
  return job.sync.inner_state == "average";
}

}  // namespace muster::sync
