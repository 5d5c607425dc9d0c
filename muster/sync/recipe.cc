#include "muster/sync/recipe.h"

#include "muster/base/check.h"

namespace muster::sync {

bool is_periodic(std::string_view strategy) { return strategy != "lockstep"; }

Recipe recipe_of(const config::SyncOptions& sync) {
  Recipe recipe;
  if (sync.strategy == "bmuf") {
    recipe.momentum = 1 - 1 / static_cast<double>(sync.replicas);
  } else if (sync.strategy == "diloco") {
    recipe = {.lr = 0.7, .momentum = 0.9, .nesterov = true};
  } else if (sync.strategy == "easgd") {
    recipe = {.lr = 0.9, .elastic = true};
  } else {
    MUSTER_CHECK(sync.strategy == "average", "a strategy without a recipe");
  }
  if (sync.outer.lr >= 0) recipe.lr = sync.outer.lr;
  if (sync.outer.momentum >= 0) recipe.momentum = sync.outer.momentum;
  return recipe;
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
  if (job.sync.inner_state == "auto") return job.optimizer.kind != "sgd";
  return job.sync.inner_state == "average";
}

}  // namespace muster::sync
