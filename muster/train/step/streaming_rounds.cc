#include "muster/train/step/streaming_rounds.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "muster/base/check.h"
#include "muster/base/hash.h"
#include "muster/train/step/own_weights.h"

namespace muster::train {

StreamingRounds::StreamingRounds(const config::Job& job, const StrategyParts& parts,
                                 size_t first_kept)
    : job_(job),
      parts_(parts),
      first_kept_(first_kept),
      recipe_(sync::recipe_of(job.sync)),
      size_(parts.arena->layout().block_elements()),
      fragments_(static_cast<size_t>(job.sync.fragments)),
      own_(static_cast<size_t>(job.sync.replicas)) {
  cut();
}

// Fragment f has the blocks from f / fragments on; the last one has all statistics too.
void StreamingRounds::cut() {
  const auto& layout = parts_.arena->layout();
  const auto blocks = layout.blocks();
  const size_t statistics = layout.first_block(parts_.arena->first_statistic());
  for (size_t f = 0; f < fragments_.size(); ++f) {
    Fragment& fragment = fragments_[f];
    const size_t begin = statistics * f / fragments_.size();
    const bool last = f + 1 == fragments_.size();
    const size_t end = last ? blocks.size() : statistics * (f + 1) / fragments_.size();
    size_t late = 0;
    std::vector<size_t> sizes;
    for (size_t b = begin; b < end; ++b) {
      const bool same = b > begin && blocks[b].tensor == blocks[b - 1].tensor;
      if (!same) {
        fragment.pieces.push_back(
            {.begin = blocks[b].begin, .size = 0, .statistic = b >= statistics});
        sizes.push_back(0);
        late += b < statistics ? 1 : 0;
      }
      fragment.pieces.back().size += blocks[b].size;
      sizes.back() += blocks[b].size;
    }
    if (sizes.empty()) continue;  // fewer blocks than fragments
    fragment.layout = std::make_unique<exact::BlockLayout>(sizes);
    fragment.sums = std::make_unique<ReplicaSums>(job_, *fragment.layout, late, *parts_.memory);
    // Random numbers depend on it: another one for each fragment, and for what is committed.
    constexpr size_t kFirstBuffer = 1000;
    fragment.sums->add({.buffer = kFirstBuffer + f,
                        .bits = job_.sync.bits,
                        .rotated = job_.sync.rotation == "hadamard"});
  }
}

void StreamingRounds::cancel() {
  // The others have begun it too, or will at the end of their segment. If one of them is lost, the
  // group fails. Either way it ends, and an error of this worker remains its own.
  transfer_.reset();
}

Status StreamingRounds::begin(const Peers& peers) {
  Arena& arena = *parts_.arena;
  weights_.assign(arena.weights().begin(), arena.weights().begin() + static_cast<ptrdiff_t>(size_));
  const auto momentum = arena.optimizer_state(first_kept_ - 1);
  momentum_.assign(momentum.begin(), momentum.end());
  for (size_t r = 0; r < own_.size(); ++r) {
    Replica& replica = own_[r];
    if (!peers.owns(static_cast<int>(r))) {
      replica = {};
      continue;
    }
    load_own(arena, first_kept_ + r, replica.weights);
  }
  return {};
}

void StreamingRounds::take(int number, std::span<const float> after) {
  std::ranges::copy(after, own_[static_cast<size_t>(number)].weights.begin());
}

Result<bool> StreamingRounds::exchange(int64_t round, const Peers& peers) {
  MUSTER_TRY(bool finite, receive(peers));
  uint64_t common = 0;
  if (peers.last && peers.group.size() > 1) {  // what all have had so far
    common = hash64(weights_.data(), weights_.size() * sizeof(float));
    common = hash64(momentum_.data(), momentum_.size() * sizeof(float), common);
  }
  MUSTER_TRY(finite, agree(finite && peers.finite, common, parts_.auditor, peers));
  if (!finite) return false;
  const size_t due = static_cast<size_t>(round) % fragments_.size();
  for (size_t f = 0; f < (peers.end ? fragments_.size() : 1); ++f) {
    send((due + f) % fragments_.size(), round, peers);
    if (!peers.last) return true;
    MUSTER_TRY(finite, receive(peers));
    if (!finite) return false;
  }
  for (const int number : peers.replicas) {
    Replica& replica = own_[static_cast<size_t>(number)];
    replica.away.resize(size_);
    for (size_t i = 0; i < size_; ++i) replica.away[i] = replica.weights[i] - weights_[i];
  }
  return true;
}

void StreamingRounds::send(size_t number, int64_t round, const Peers& peers) {
  const Fragment& fragment = fragments_[number];
  if (fragment.layout == nullptr) return;  // on all workers
  const size_t size = fragment.layout->block_elements();
  for (const int replica : peers.replicas) {
    auto& own = own_[static_cast<size_t>(replica)];
    own.changes.resize(size);
    for (size_t p = 0; p < fragment.pieces.size(); ++p) {
      const Piece& piece = fragment.pieces[p];
      const size_t to = fragment.layout->tensor_begin(p);
      for (size_t i = 0; i < piece.size; ++i) {
        own.changes[to + i] = weights_[piece.begin + i] - own.weights[piece.begin + i];
      }
    }
  }
  progress_.progress = peers.vitals.progress;
  transfer_ = std::make_unique<Transfer>();
  transfer_->fragment = number;
  transfer_->end = peers.end;
  const auto work = [this, round, transfer = transfer_.get(), group = &peers.group,
                     timeout = peers.timeout,
                     replicas = std::vector<int>(peers.replicas.begin(), peers.replicas.end())] {
    const auto values = [this](size_t, int replica) {
      return std::span<const float>(own_[static_cast<size_t>(replica)].changes);
    };
    transfer->finite = fragments_[transfer->fragment].sums->exchange(replicas, values, round,
                                                                     *group, timeout, progress_);
  };
  // Alone there is nothing to wait for.
  if (peers.group.size() == 1) return work();
  transfer_->thread = Thread("stream", work);
}

Result<bool> StreamingRounds::receive(const Peers& peers) {
  if (transfer_ == nullptr) return true;
  {
    const WaitingForPeers waiting(peers.vitals);
    transfer_->thread.join();
  }
  const auto done = std::move(transfer_);
  MUSTER_TRY(const bool finite, *std::move(done->finite));
  if (finite) merge(fragments_[done->fragment], peers.replicas, done->end);
  return finite;
}

void StreamingRounds::merge(const Fragment& fragment, std::span<const int> replicas, bool end) {
  const auto share = 1.0f / static_cast<float>(own_.size());
  const auto blend = end ? 0.0f : static_cast<float>(job_.sync.blend);
  const auto blocks = fragment.layout->blocks();
  constexpr size_t kGrain = 16;
  parts_.team->for_each(blocks.size(), kGrain, [&](int, size_t b) {
    std::array<float, exact::kBlockSize> room;  // NOLINT(*-member-init): written before it is read
    const exact::Block& there = blocks[b];
    const Piece& piece = fragment.pieces[there.tensor];
    const size_t begin = piece.begin + there.begin - fragment.layout->tensor_begin(there.tensor);
    const exact::Block where = {.tensor = 0, .begin = begin, .size = there.size};
    fragment.sums->read(0, b, room);
    const auto mean = std::span(room).first(where.size);
    for (float& d : mean) d *= share;
    const auto common = exact::part(std::span(weights_), where);
    if (piece.statistic || end) {
      for (size_t i = 0; i < mean.size(); ++i) common[i] -= mean[i];
    } else {
      sync::outer_step(recipe_, mean, exact::part(std::span(momentum_), where), common);
    }
    for (const int number : replicas) {
      Replica& replica = own_[static_cast<size_t>(number)];
      const auto own = exact::part(std::span(replica.weights), where);
      const auto sent = exact::part(std::span<const float>(replica.changes), there);
      for (size_t i = 0; i < own.size(); ++i) {
        // Statistics: the mean, and what has been added since it was sent.
        own[i] = piece.statistic ? own[i] + (sent[i] - mean[i])
                                 : blend * own[i] + (1 - blend) * common[i];
      }
    }
  });
}

void StreamingRounds::apply(size_t block) {
  Arena& arena = *parts_.arena;
  const auto& where = arena.layout().blocks()[block];
  const auto copy = [&](std::span<const float> from, std::span<float> to) {
    std::ranges::copy(exact::part(from, where), exact::part(to, where).begin());
  };
  copy(weights_, arena.weights());
  copy(momentum_, arena.optimizer_state(first_kept_ - 1));
}

}  // namespace muster::train
