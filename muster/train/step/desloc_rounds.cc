#include "muster/train/step/desloc_rounds.h"

#include <algorithm>
#include <array>

#include "muster/base/hash.h"
#include "muster/sync/recipe.h"

namespace muster::train {
namespace {

constexpr size_t kGrain = 16;  // blocks for a thread at a time
// Random numbers depend on it: others than for what is committed.
constexpr size_t kFirstBuffer = 2000;

}  // namespace

DeslocRounds::DeslocRounds(const config::Job& job, const StrategyParts& parts)
    : parts_(parts),
      half_((sync::rounds_of(job.sync) + 1) / 2),
      share_(1.0f / static_cast<float>(job.sync.replicas)),
      weights_(parts.arena->layout().block_elements()),
      changes_(static_cast<size_t>(job.sync.replicas)),
      sums_(job, parts.arena->layout(), parts.arena->first_statistic(), *parts.memory),
      moment_sums_(job, parts.arena->layout(), parts.arena->first_statistic(), *parts.memory) {
  sums_.add(
      {.buffer = kFirstBuffer, .bits = job.sync.bits, .rotated = job.sync.rotation == "hadamard"});
  const auto names = parts.optimizer->state_names();
  for (size_t s = 0; s < names.size(); ++s) {
    if (optim::is_square(names[s])) continue;
    moments_.push_back(s);
    moment_sums_.add({.buffer = kFirstBuffer + 1 + s, .bits = sync::state_bits(job.sync)});
  }
  if (!moments_.empty()) moment_.resize(weights_.size());
}

Status DeslocRounds::begin(const Peers& peers) {
  std::ranges::copy(parts_.arena->weights().first(weights_.size()), weights_.begin());
  for (size_t r = 0; r < changes_.size(); ++r) {
    if (peers.owns(static_cast<int>(r))) {
      changes_[r].resize(weights_.size());
    } else {
      changes_[r] = {};
    }
  }
  return {};
}

void DeslocRounds::take(int replica, std::span<const float> after) {
  auto& changes = changes_[static_cast<size_t>(replica)];
  for (size_t i = 0; i < changes.size(); ++i) changes[i] = weights_[i] - after[i];
}

Result<bool> DeslocRounds::exchange(int64_t round, const Peers& peers) {
  const uint64_t common =
      peers.group.size() > 1 ? hash64(weights_.data(), weights_.size() * sizeof(float)) : 0;
  MUSTER_TRY(bool finite, agree(peers.finite, common, parts_.auditor, peers));
  if (!finite) return false;
  MUSTER_TRY(finite, average_weights(round, peers));
  if (!finite || peers.last || peers.number + 1 != half_) return finite;
  return average_moments(round, peers);
}

Result<bool> DeslocRounds::average_weights(int64_t round, const Peers& peers) {
  const auto changes = [this](size_t, int replica) {
    return std::span<const float>(changes_[static_cast<size_t>(replica)]);
  };
  MUSTER_TRY(const bool finite, sums_.exchange(peers.replicas, changes, round, peers.group,
                                               peers.timeout, peers.vitals));
  if (!finite) return false;
  const auto blocks = parts_.arena->layout().blocks();
  parts_.team->for_each(blocks.size(), kGrain, [&](int, size_t block) {
    std::array<float, exact::kBlockSize> room;  // NOLINT(*-member-init): written before it is read
    const auto sum = sums_.read(0, block, room);
    const auto weights = exact::part(std::span(weights_), blocks[block]);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] -= share_ * sum[i];
  });
  return true;
}

Result<bool> DeslocRounds::average_moments(int64_t round, const Peers& peers) {
  if (moments_.empty()) return true;
  // How far a replica's are from those of the last commit, which all workers have: few bits of that
  // say more.
  const auto changes = [&](size_t buffer, int replica) {
    const size_t state = buffer - kFirstBuffer - 1;
    const auto common = parts_.arena->optimizer_state(state);
    const auto own = peers.states(state, replica);
    for (size_t i = 0; i < moment_.size(); ++i) moment_[i] = common[i] - own[i];
    return std::span<const float>(moment_);
  };
  MUSTER_TRY(const bool finite, moment_sums_.exchange(peers.replicas, changes, round, peers.group,
                                                      peers.timeout, peers.vitals));
  if (!finite) return false;
  const auto blocks = parts_.arena->layout().blocks();
  for (size_t m = 0; m < moments_.size(); ++m) {
    const auto all = parts_.arena->optimizer_state(moments_[m]);
    parts_.team->for_each(blocks.size(), kGrain, [&](int, size_t block) {
      std::array<float, exact::kBlockSize>
          room;  // NOLINT(*-member-init): written before it is read
      const auto sum = moment_sums_.read(m, block, room);
      const auto common = exact::part(all, blocks[block]);
      for (const int replica : peers.replicas) {
        const auto own = exact::part(peers.states(moments_[m], replica), blocks[block]);
        for (size_t i = 0; i < own.size(); ++i) own[i] = common[i] - share_ * sum[i];
      }
    });
  }
  return true;
}

void DeslocRounds::apply(size_t block) {
  const auto& where = parts_.arena->layout().blocks()[block];
  std::ranges::copy(exact::part(std::span(weights_), where),
                    exact::part(parts_.arena->weights(), where).begin());
}

}  // namespace muster::train
