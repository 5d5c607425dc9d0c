#include "muster/train/step/sparta_rounds.h"

#include <algorithm>
#include <array>

#include "muster/base/random.h"
#include "muster/sync/subset.h"
#include "muster/train/step/own_weights.h"

namespace muster::train {
namespace {

constexpr size_t kGrain = 16;  // blocks for a thread at a time
// Random numbers depend on it: others than for what is committed.
constexpr size_t kBuffer = 3000;

// How many values of each tensor are averaged in a round.
std::vector<size_t> packed_sizes(const exact::BlockLayout& layout, int64_t keep) {
  std::vector<size_t> sizes(layout.tensors());
  for (const auto& block : layout.blocks()) {
    sizes[block.tensor] += sync::share_of(block.size, keep);
  }
  return sizes;
}

}  // namespace

SpartaRounds::SpartaRounds(const config::Job& job, const StrategyParts& parts, size_t first_kept)
    : job_(job),
      parts_(parts),
      first_kept_(first_kept),
      share_(1.0f / static_cast<float>(job.sync.replicas)),
      layout_(packed_sizes(parts.arena->layout(), job.sync.keep)),
      sums_(job, layout_, parts.arena->first_statistic(), *parts.memory),
      places_(layout_.elements()),
      mean_(layout_.elements()),
      own_(static_cast<size_t>(job.sync.replicas)) {
  sums_.add({.buffer = kBuffer, .bits = job.sync.bits});
  std::vector<size_t> used(layout_.tensors());
  for (const auto& block : parts.arena->layout().blocks()) {
    const size_t size = sync::share_of(block.size, job.sync.keep);
    packed_.push_back({layout_.tensor_begin(block.tensor) + used[block.tensor], size});
    used[block.tensor] += size;
  }
}

Status SpartaRounds::begin(const Peers& peers) {
  for (size_t r = 0; r < own_.size(); ++r) {
    if (peers.owns(static_cast<int>(r))) {
      load_own(*parts_.arena, first_kept_ + r, own_[r].weights);
      own_[r].sent.resize(layout_.elements());
    } else {
      own_[r] = {};
    }
  }
  return {};
}

void SpartaRounds::take(int number, std::span<const float> after) {
  std::ranges::copy(after, own_[static_cast<size_t>(number)].weights.begin());
}

Result<bool> SpartaRounds::exchange(int64_t round, const Peers& peers) {
  // What all workers have in common is the state of the job, which is audited.
  MUSTER_TRY(bool finite, agree(peers.finite, 0, parts_.auditor, peers));
  if (!finite) return false;
  draw(round);
  for (const int number : peers.replicas) gather(own_[static_cast<size_t>(number)]);
  const auto sent = [this](size_t, int replica) {
    return std::span<const float>(own_[static_cast<size_t>(replica)].sent);
  };
  MUSTER_TRY(finite,
             sums_.exchange(peers.replicas, sent, round, peers.group, peers.timeout, peers.vitals));
  if (!finite) return false;
  scatter(peers.replicas);
  const auto common = parts_.arena->weights();
  for (size_t r = 0; peers.last && r < own_.size(); ++r) {
    Replica& replica = own_[r];
    replica.away.resize(replica.weights.size());
    for (size_t i = 0; i < replica.away.size(); ++i) {
      replica.away[i] = replica.weights[i] - common[i];
    }
  }
  return true;
}

void SpartaRounds::draw(int64_t round) {
  const auto blocks = parts_.arena->layout().blocks();
  parts_.team->for_each(blocks.size(), kGrain, [&](int, size_t b) {
    const RandomStream random(job_.seed, Purpose::kSubset, static_cast<uint64_t>(round), b);
    const auto places = std::span(places_).subspan(packed_[b].begin, packed_[b].size);
    sync::draw_subset(random, blocks[b].size, places);
  });
}

void SpartaRounds::gather(Replica& replica) const {
  const auto blocks = parts_.arena->layout().blocks();
  const auto common = parts_.arena->weights();
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (size_t p = packed_[b].begin; p < packed_[b].begin + packed_[b].size; ++p) {
      const size_t i = blocks[b].begin + places_[p];
      replica.sent[p] = replica.weights[i] - common[i];
    }
  }
}

void SpartaRounds::scatter(std::span<const int> replicas) {
  const auto packed = layout_.blocks();
  parts_.team->for_each(packed.size(), kGrain, [&](int, size_t b) {
    const auto mean = exact::part(std::span(mean_), packed[b]);
    std::array<float, exact::kBlockSize> room;  // NOLINT(*-member-init): written before it is read
    const auto sum = sums_.read(0, b, room);
    for (size_t i = 0; i < mean.size(); ++i) mean[i] = share_ * sum[i];
  });
  const auto blocks = parts_.arena->layout().blocks();
  const auto common = parts_.arena->weights();
  for (const int number : replicas) {
    auto& weights = own_[static_cast<size_t>(number)].weights;
    for (size_t b = 0; b < blocks.size(); ++b) {
      for (size_t p = packed_[b].begin; p < packed_[b].begin + packed_[b].size; ++p) {
        const size_t i = blocks[b].begin + places_[p];
        weights[i] = common[i] + mean_[p];
      }
    }
  }
}

void SpartaRounds::apply(size_t block) {
  take_mean_of_own(*parts_.arena, first_kept_, own_.size(), block);
}

}  // namespace muster::train
