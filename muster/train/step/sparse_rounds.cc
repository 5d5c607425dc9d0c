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

// Before what a replica sent. Little-endian, as sync/sparse_code.h.
struct Header {
  uint32_t replica;
  uint32_t finite;
  uint64_t size;  // of what follows
  uint64_t hash;  // of that
};

}  // namespace

SparseRounds::SparseRounds(const config::Job& job, const StrategyParts& parts, size_t first_kept)
    : job_(job),
      parts_(parts),
      first_kept_(first_kept),
      statistics_begin_(parts.arena->first_statistic() < parts.arena->layout().tensors()
                            ? parts.arena->layout().tensor_begin(parts.arena->first_statistic())
                            : parts.arena->layout().block_elements()),
      rate_(static_cast<float>(sync::recipe_of(job.sync).lr)),
      code_(parts.arena->layout(), parts.arena->first_statistic(), job.sync.keep),
      weights_(parts.arena->layout().block_elements()),
      own_(static_cast<size_t>(job.sync.replicas)),
      sent_(own_.size(), code_.empty()),
      statistics_(own_.size() * (weights_.size() - statistics_begin_)) {}

Status SparseRounds::begin(const Peers& peers) {
  std::ranges::copy(parts_.arena->weights().first(weights_.size()), weights_.begin());
  for (Replica& replica : own_) replica = {};
  for (const int number : peers.replicas) {
    const auto error = parts_.arena->optimizer_state(first_kept_ + static_cast<size_t>(number));
    own_[static_cast<size_t>(number)].error.assign(error.begin(), error.end());
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
  out_.clear();
  for (const int number : replicas) {
    Replica& replica = own_[static_cast<size_t>(number)];
    sync::Sparse& sparse = sent_[static_cast<size_t>(number)];
    const size_t at = out_.size();
    out_.resize(at + sizeof(Header));
    if (replica.finite) {
      code_.quantise(replica.error, sparse);
      code_.subtract(sparse, replica.error);
      code_.write(sparse, out_);
      const auto statistics = std::as_bytes(std::span(replica.statistics));
      out_.insert(out_.end(), statistics.begin(), statistics.end());
    }
    const auto body = std::span(out_).subspan(at + sizeof(Header));
    const Header header = {.replica = static_cast<uint32_t>(number),
                           .finite = replica.finite ? 1u : 0u,
                           .size = body.size(),
                           .hash = hash64(body.data(), body.size())};
    std::memcpy(out_.data() + at, &header, sizeof(header));
  }
}

Result<bool> SparseRounds::exchange(int64_t /*round*/, const Peers& peers) {
  pack(peers.replicas);
  const comm::OpOptions options = {.timeout = peers.timeout};
  const auto members = static_cast<size_t>(peers.group.size());
  const auto rank = static_cast<size_t>(peers.group.rank());
  std::vector<uint64_t> sizes(members);
  sizes[rank] = out_.size();
  {
    const WaitingForPeers waiting(peers.vitals);
    MUSTER_RETURN_IF_ERROR(peers.group.allgather(std::span(sizes), options));
  }
  // Parts of an allgather have one size; those of the workers are nearly that already.
  const size_t stride = *std::ranges::max_element(sizes);
  all_.resize(stride * members);
  std::ranges::copy(out_, all_.begin() + static_cast<ptrdiff_t>(rank * stride));
  {
    const WaitingForPeers waiting(peers.vitals);
    MUSTER_RETURN_IF_ERROR(peers.group.allgather(std::span(all_), options));
  }
  bool finite = true;
  MUSTER_RETURN_IF_ERROR(unpack(sizes, stride, peers, finite));
  if (finite) merge();
  return finite;
}

Status SparseRounds::unpack(std::span<const uint64_t> sizes, size_t stride, const Peers& peers,
                            bool& finite) {
  std::vector<bool> there(own_.size());
  for (size_t member = 0; member < sizes.size(); ++member) {
    const auto from = std::span(all_).subspan(member * stride, sizes[member]);
    if (unpack(from, there, finite)) continue;
    peers.group.abort("what " + peers.group.describe(static_cast<int>(member)) +
                      " sent at the end of a round is damaged");
    return Error(ErrorKind::kInternal, "a damaged message at the end of a round");
  }
  if (std::ranges::find(there, false) == there.end()) return {};
  peers.group.abort("a replica is nobody's");
  return Error(ErrorKind::kInternal, "a replica is nobody's");
}

bool SparseRounds::unpack(std::span<const std::byte> from, std::vector<bool>& there, bool& finite) {
  const size_t statistics = weights_.size() - statistics_begin_;
  while (!from.empty()) {
    Header header{};
    if (from.size() < sizeof(header)) return false;
    std::memcpy(&header, from.data(), sizeof(header));
    from = from.subspan(sizeof(header));
    if (header.replica >= there.size() || there[header.replica] || header.size > from.size()) {
      return false;
    }
    auto body = from.first(header.size);
    from = from.subspan(header.size);
    if (hash64(body.data(), body.size()) != header.hash) return false;
    there[header.replica] = true;
    if (header.finite == 0) {
      finite = false;
      continue;
    }
    if (!code_.read(body, sent_[header.replica])) return false;
    if (body.size() != statistics * sizeof(float)) return false;
    std::memcpy(statistics_.data() + header.replica * statistics, body.data(), body.size());
  }
  return true;
}

void SparseRounds::merge() {
  parts_.team->for_each(code_.blocks(), kGrain,
                        [&](int, size_t block) { code_.merge(block, sent_, rate_, weights_); });
  const size_t statistics = weights_.size() - statistics_begin_;
  for (size_t i = 0; i < statistics; ++i) {
    float sum = 0;
    for (size_t r = 0; r < own_.size(); ++r) sum += statistics_[r * statistics + i];
    weights_[statistics_begin_ + i] -= sum / static_cast<float>(own_.size());
  }
}

void SparseRounds::apply(size_t block, const ReplicaSums& sums, size_t first,
                         std::span<float> scratch) {
  const auto& where = parts_.arena->layout().blocks()[block];
  std::ranges::copy(exact::part(std::span(weights_), where),
                    exact::part(parts_.arena->weights(), where).begin());
  for (size_t r = 0; r < own_.size(); ++r) {
    std::ranges::copy(sums.read(first + r, block, scratch).first(where.size),
                      exact::part(parts_.arena->optimizer_state(first_kept_ + r), where).begin());
  }
}

}  // namespace muster::train
