#include "muster/train/step/gossip_rounds.h"

#include <algorithm>
#include <array>

namespace muster::train {
namespace {

// Its buffers, as sync::kept_by_replicas has them.
constexpr size_t kReplica = 0;
constexpr size_t kMomentum = 1;

}  // namespace

GossipRounds::GossipRounds(const config::Job& job, const StrategyParts& parts, size_t first_kept)
    : job_(job),
      parts_(parts),
      first_kept_(first_kept),
      recipe_(sync::recipe_of(job.sync)),
      size_(parts.arena->layout().block_elements()),
      own_(static_cast<size_t>(job.sync.replicas)),
      owners_(own_.size()) {}

std::span<float> GossipRounds::state(size_t buffer, size_t replica) {
  return parts_.arena->optimizer_state(first_kept_ + buffer * own_.size() + replica);
}

Status GossipRounds::begin(const Peers& peers) {
  for (Replica& replica : own_) replica = {};
  std::ranges::fill(owners_, 0);
  const auto common = parts_.arena->weights();
  for (const int number : peers.replicas) {
    const auto r = static_cast<size_t>(number);
    owners_[r] = peers.group.rank();
    Replica& replica = own_[r];
    const auto away = state(kReplica, r);
    replica.weights.resize(size_);
    for (size_t i = 0; i < size_; ++i) replica.weights[i] = common[i] + away[i];
    replica.change.resize(size_);
    replica.momentum.assign(state(kMomentum, r).begin(), state(kMomentum, r).end());
  }
  const WaitingForPeers waiting(peers.vitals);
  return peers.group.allreduce_sum(owners_, {.timeout = peers.timeout});
}

void GossipRounds::take(int number, std::span<const float> after) {
  Replica& replica = own_[static_cast<size_t>(number)];
  for (size_t i = 0; i < size_; ++i) replica.change[i] = after[i] - replica.weights[i];
}

Result<bool> GossipRounds::exchange(int64_t round, const Peers& peers) {
  // Every worker goes through the pairs in the same order, so there is always a next pair of which
  // both are ready.
  for (const auto& pair : sync::pairs_of(job_.seed, round, static_cast<int>(own_.size()))) {
    MUSTER_RETURN_IF_ERROR(exchange_pair(pair, peers));
    peers.vitals.note_progress();
  }
  const auto common = parts_.arena->weights();
  for (const int number : peers.replicas) {
    Replica& replica = own_[static_cast<size_t>(number)];
    for (size_t i = 0; i < size_; ++i) replica.change[i] = replica.weights[i] - common[i];
  }
  return true;
}

Status GossipRounds::exchange_pair(sync::Pair pair, const Peers& peers) {
  const std::array<int, 2> both = {pair.first, pair.second};
  const std::array<int, 2> owner = {owners_[static_cast<size_t>(pair.first)],
                                    owners_[static_cast<size_t>(pair.second)]};
  auto& group = peers.group;
  // In a large group not all workers can send to each other; then all get it.
  const bool all = owner[0] != owner[1] &&
                   !(group.can_send(owner[0], owner[1]) && group.can_send(owner[1], owner[0]));
  if (!all && !is_own(both[0]) && !is_own(both[1])) return {};
  for (size_t k = 0; k < 2; ++k) {
    told_[k].resize(2 * size_);
    if (!is_own(both[k])) continue;
    std::ranges::copy(of(both[k]).weights, told_[k].begin());
    std::ranges::copy(of(both[k]).change, told_[k].begin() + static_cast<ptrdiff_t>(size_));
  }
  if (owner[0] != owner[1]) {
    const WaitingForPeers waiting(peers.vitals);
    const comm::OpOptions options = {.timeout = peers.timeout};
    for (size_t k = 0; k < 2; ++k) {
      const auto data = std::span(told_[k]);
      if (all) {
        MUSTER_RETURN_IF_ERROR(group.broadcast(data, owner[k], options));
      } else if (is_own(both[k])) {
        MUSTER_RETURN_IF_ERROR(group.send(data, owner[1 - k], options));
      } else {
        MUSTER_RETURN_IF_ERROR(group.recv(data, owner[k], options));
      }
    }
  }
  if (is_own(both[0])) merge(both[0], told_[1]);
  if (is_own(both[1]) && both[0] != both[1]) merge(both[1], told_[0]);
  return {};
}

void GossipRounds::merge(int number, std::span<const float> other) {
  Replica& replica = own_[static_cast<size_t>(number)];
  constexpr size_t kGrain = 16;
  const auto& layout = parts_.arena->layout();
  parts_.team->for_each(layout.blocks().size(), kGrain, [&](int, size_t block) {
    const auto& where = layout.blocks()[block];
    // Of statistics there is no gradient: they become the mean of both.
    const bool statistic =
        parts_.arena->tensors()[where.tensor].info.role == optim::Role::kStatistic;
    const auto rate = statistic ? 1.0f : static_cast<float>(recipe_.lr);
    const auto momentum = statistic ? 0.0f : static_cast<float>(recipe_.momentum);
    for (size_t i = where.begin; i < where.begin + where.size; ++i) {
      const float change = 0.5f * (replica.change[i] + other[size_ + i]);
      const float away = 0.5f * (other[i] - replica.weights[i]);
      replica.momentum[i] = momentum * replica.momentum[i] + rate * (change + away);
      replica.weights[i] += replica.momentum[i];
    }
  });
}

std::span<const float> GossipRounds::kept(size_t buffer, int replica) const {
  return buffer == kReplica ? of(replica).change : of(replica).momentum;
}

void GossipRounds::apply(size_t block, const ReplicaSums& sums, size_t first,
                         std::span<float> scratch) {
  const auto& where = parts_.arena->layout().blocks()[block];
  const auto weights = exact::part(parts_.arena->weights(), where);
  std::array<float, exact::kBlockSize> mean = {};
  const float share = 1.0f / static_cast<float>(own_.size());
  for (size_t r = 0; r < own_.size(); ++r) {
    for (const size_t buffer : {kReplica, kMomentum}) {
      const auto kept = sums.read(first + buffer * own_.size() + r, block, scratch);
      std::ranges::copy(kept.first(where.size), exact::part(state(buffer, r), where).begin());
    }
    const auto away = exact::part(state(kReplica, r), where);
    for (size_t i = 0; i < where.size; ++i) mean[i] += share * away[i];
  }
  for (size_t i = 0; i < where.size; ++i) weights[i] += mean[i];
  for (size_t r = 0; r < own_.size(); ++r) {
    const auto away = exact::part(state(kReplica, r), where);
    for (size_t i = 0; i < where.size; ++i) away[i] -= mean[i];
  }
}

}  // namespace muster::train
