#include "muster/ps/simulation/training.h"

#include <numeric>
#include <set>

#include "muster/base/hash.h"
#include "muster/ps/simulation/step_client.h"
#include "muster/ps/simulation/task_client.h"

namespace muster::ps::simulation {
namespace {

uint64_t mixed(uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t words[] = {a, b, c};
  return hash64(words, sizeof(words));
}

}  // namespace

std::unique_ptr<Training> make_training(Clients clients, Cluster& cluster) {
  if (clients == Clients::kSteps) return std::make_unique<StepTraining>(cluster);
  if (clients == Clients::kTasks) return std::make_unique<TaskTraining>(cluster);
  return nullptr;
}

std::vector<uint64_t> some_keys(uint64_t step, uint64_t lane) {
  std::set<uint64_t> keys;
  for (uint64_t i = 0; keys.size() < 3; ++i) keys.insert(mixed(step, lane, i) % kKeys);
  return {keys.begin(), keys.end()};
}

std::vector<uint64_t> first_keys(uint64_t count) {
  std::vector<uint64_t> keys(count);
  std::iota(keys.begin(), keys.end(), uint64_t{0});
  return keys;
}

float noise(uint64_t era, uint64_t step, uint64_t lane, uint64_t i) {
  return static_cast<float>(mixed(mixed(era, step, 0), lane, 1000 + i) % 1000) / 500 - 1;
}

std::string Training::check_end(std::span<TableData* const> shards) {
  const uint64_t position = groups_.position();
  return check(shards, position, groups_.checkpoints().eras_of(groups_.era(), position));
}

}  // namespace muster::ps::simulation
