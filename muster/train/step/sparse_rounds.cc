#include "muster/train/step/sparse_rounds.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "muster/base/hash.h"
#include "muster/sync/recipe.h"

namespace muster::train {
namespace {

constexpr size_t kGrain = 16;  // blocks for a thread at a time

}  // namespace

SparseRounds::SparseRounds(const config::Job& job, const StrategyParts& parts, size_t first_kept)
    : job_(job),
      parts_(parts),
      first_kept_(first_kept),
      statistics_begin_(parts.arena->statistics_begin()),
      rate_(static_cast<float>(sync::recipe_of(job.sync).lr)),
      code_(parts.arena->layout(), parts.arena->first_statistic(), job.sync.keep),
      weights_(parts.arena->layout().block_elements()),
      own_(static_cast<size_t>(job.sync.replicas)),
      sent_(own_.size(), code_.empty()),
      messages_(own_.size(),
                code_.largest_size() + (weights_.size() - statistics_begin_) * sizeof(float),
                parts.auditor),
      statistics_(own_.size() * (weights_.size() - statistics_begin_)) {}

Status SparseRounds::begin(const Peers& peers) {
  std::ranges::copy(parts_.arena->weights().first(weights_.size()), weights_.begin());
  for (size_t r = 0; r < own_.size(); ++r) {
    if (!peers.owns(static_cast<int>(r))) {
      own_[r] = {};
      continue;
    }
    const auto error = parts_.arena->optimizer_state(first_kept_ + r);
    own_[r].error.assign(error.begin(), error.end());
  }
  return {};
}

void SparseRounds::take(int number, std::span<const float> after) {
  Replica& replica = own_[static_cast<size_t>(number)];
  const auto decay = static_cast<float>(job_.sync.decay);
  std::atomic<bool> finite = true;
  parts_.team->for_each(code_.blocks(), kGrain, [&](int, size_t block) {
    const auto& where = parts_.arena->layout().blocks()[block];
    bool all = true;
    for (size_t i = where.begin; i < where.begin + where.size; ++i) {
      replica.error[i] = decay * replica.error[i] + (weights_[i] - after[i]);
      all &= std::isfinite(replica.error[i]);
    }
    if (all) {
      code_.select(block, replica.error, sent_[static_cast<size_t>(number)]);
    } else {
      finite.store(false, std::memory_order_relaxed);
    }
  });
  replica.statistics.resize(weights_.size() - statistics_begin_);
  for (size_t i = statistics_begin_; i < weights_.size(); ++i) {
    replica.statistics[i - statistics_begin_] = weights_[i] - after[i];
    if (!std::isfinite(weights_[i] - after[i])) finite.store(false, std::memory_order_relaxed);
  }
  replica.finite = finite.load(std::memory_order_relaxed);
}

void SparseRounds::pack(std::span<const int> replicas) {
  messages_.clear();
  for (const int number : replicas) {
    Replica& replica = own_[static_cast<size_t>(number)];
    sync::Sparse& sparse = sent_[static_cast<size_t>(number)];
    auto& out = messages_.begin(number);
    if (replica.finite) {
      code_.quantise(replica.error, sparse);
      code_.subtract(sparse, replica.error);
      code_.write(sparse, out);
      const auto statistics = std::as_bytes(std::span(replica.statistics));
      out.insert(out.end(), statistics.begin(), statistics.end());
    }
    messages_.end(replica.finite);
  }
}

Result<bool> SparseRounds::exchange(int64_t /*round*/, const Peers& peers) {
  pack(peers.replicas);
  const uint64_t common = hash64(weights_.data(), weights_.size() * sizeof(float));
  MUSTER_TRY(const bool finite, messages_.exchange(common, peers));
  if (!finite) return false;
  const size_t statistics = weights_.size() - statistics_begin_;
  for (size_t r = 0; r < own_.size(); ++r) {
    auto body = messages_.of(r);
    if (!code_.read(body, sent_[r]) || body.size() != statistics * sizeof(float)) {
      return ReplicaMessages::unreadable(r, peers);
    }
    if (!body.empty()) {
      std::memcpy(statistics_.data() + r * statistics, body.data(), body.size());
    }
  }
  return merge();
}

bool SparseRounds::merge() {
  std::atomic<bool> finite = true;
  parts_.team->for_each(code_.blocks(), kGrain, [&](int, size_t block) {
    if (!code_.merge(block, sent_, rate_, weights_)) {
      finite.store(false, std::memory_order_relaxed);
    }
  });
  const size_t statistics = weights_.size() - statistics_begin_;
  for (size_t i = 0; i < statistics; ++i) {
    float sum = 0;
    for (size_t r = 0; r < own_.size(); ++r) sum += statistics_[r * statistics + i];
    weights_[statistics_begin_ + i] -= sum / static_cast<float>(own_.size());
  }
  return finite.load(std::memory_order_relaxed);
}

void SparseRounds::apply(size_t block) {
  const auto& where = parts_.arena->layout().blocks()[block];
  std::ranges::copy(exact::part(std::span(weights_), where),
                    exact::part(parts_.arena->weights(), where).begin());
}

}  // namespace muster::train
