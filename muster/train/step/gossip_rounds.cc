#include "muster/train/step/gossip_rounds.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "muster/train/step/own_weights.h"

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
  std::ranges::fill(owners_, 0);
  for (size_t r = 0; r < own_.size(); ++r) {
    Replica& replica = own_[r];
    if (!peers.owns(static_cast<int>(r))) {
      replica = {};
      continue;
    }
    owners_[r] = peers.group.rank();
    load_own(*parts_.arena, first_kept_ + r, replica.weights);
    replica.after.resize(size_);
    replica.momentum.assign(state(kMomentum, r).begin(), state(kMomentum, r).end());
  }
  const WaitingForPeers waiting(peers.vitals);
  return peers.group.allreduce_sum(owners_, {.timeout = peers.timeout});
}

void GossipRounds::take(int number, std::span<const float> after) {
  std::ranges::copy(after, own_[static_cast<size_t>(number)].after.begin());
}

Result<bool> GossipRounds::exchange(int64_t round, const Peers& peers) {
  // Every worker goes through the pairs in the same order, so there is always a next pair of which
  // both are ready.
  for (const auto& pair : sync::pairs_of(job_.seed, round, static_cast<int>(own_.size()))) {
    MUSTER_RETURN_IF_ERROR(exchange_pair(pair, peers));
  }
  const auto common = parts_.arena->weights();
  bool finite = peers.finite;
  for (const int number : peers.replicas) {
    Replica& replica = own_[static_cast<size_t>(number)];
    for (size_t i = 0; i < size_; ++i) {
      replica.after[i] = replica.weights[i] - common[i];
      finite &= std::isfinite(replica.after[i]);
    }
  }
  // Also so that nobody is more than a round ahead of the others. Nothing is common to all.
  return agree(finite, 0, parts_.auditor, peers);
}

Status GossipRounds::exchange_pair(sync::Pair pair, const Peers& peers) {
  MUSTER_RETURN_IF_ERROR(exchange_parts(pair, peers));
  const auto told = [&](int replica, size_t k) -> std::span<const float> {
    return is_own(replica) ? std::span<const float>(of(replica).after) : told_[k];
  };
  const auto a = told(pair.first, 0);
  const auto b = told(pair.second, 1);
  if (is_own(pair.first)) merge(pair.first, a, b);
  if (is_own(pair.second) && pair.first != pair.second) merge(pair.second, a, b);
  return {};
}

// In parts, so that it is seen to progress on a slow link.
Status GossipRounds::exchange_parts(sync::Pair pair, const Peers& peers) {
  constexpr size_t kPart = 1 << 20;  // elements
  const std::array<int, 2> both = {pair.first, pair.second};
  const std::array<int, 2> owner = {owners_[static_cast<size_t>(pair.first)],
                                    owners_[static_cast<size_t>(pair.second)]};
  if (owner[0] == owner[1]) return {};
  auto& group = peers.group;
  const bool direct = group.can_send(owner[0], owner[1]) && group.can_send(owner[1], owner[0]);
  if (direct && !is_own(both[0]) && !is_own(both[1])) return {};
  std::array<std::span<float>, 2> data;
  for (size_t k = 0; k < 2; ++k) {
    if (is_own(both[k])) {
      data[k] = own_[static_cast<size_t>(both[k])].after;
    } else {
      told_[k].resize(size_);
      data[k] = told_[k];
    }
  }
  const WaitingForPeers waiting(peers.vitals);
  const comm::OpOptions options = {.timeout = peers.timeout};
  for (size_t begin = 0; begin < size_; begin += kPart) {
    for (size_t k = 0; k < 2; ++k) {
      const auto part = data[k].subspan(begin, std::min(kPart, size_ - begin));
      if (!direct) {
        MUSTER_RETURN_IF_ERROR(group.broadcast(part, owner[k], options));
      } else if (is_own(both[k])) {
        MUSTER_RETURN_IF_ERROR(group.send(part, owner[1 - k], options));
      } else {
        MUSTER_RETURN_IF_ERROR(group.recv(part, owner[k], options));
      }
      peers.vitals.note_progress();
    }
  }
  return {};
}

void GossipRounds::merge(int number, std::span<const float> a, std::span<const float> b) {
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
      const float mean = 0.5f * (a[i] + b[i]);
      replica.momentum[i] = momentum * replica.momentum[i] + rate * (mean - replica.weights[i]);
      replica.weights[i] += replica.momentum[i];
    }
  });
}

std::span<const float> GossipRounds::kept(size_t buffer, int replica) const {
  return buffer == kReplica ? of(replica).after : of(replica).momentum;
}

void GossipRounds::apply(size_t block) {
  take_mean_of_own(*parts_.arena, first_kept_, own_.size(), block);
}

}  // namespace muster::train
