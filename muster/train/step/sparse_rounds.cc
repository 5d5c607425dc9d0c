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
  uint64_t hash;  // of that, and of the rest of this
};

uint64_t hash_of(Header header, std::span<const std::byte> body) {
  header.hash = 0;
  return hash64(body.data(), body.size(), hash64(&header, sizeof(header)));
}

// Of the blocks: a frozen statistic has none, and comes after all of them.
size_t statistics_begin(const Arena& arena) {
  const auto& layout = arena.layout();
  const size_t first = layout.first_block(arena.first_statistic());
  return first < layout.blocks().size() ? layout.blocks()[first].begin : layout.block_elements();
}

}  // namespace

SparseRounds::SparseRounds(const config::Job& job, const StrategyParts& parts, size_t first_kept)
    : job_(job),
      parts_(parts),
      first_kept_(first_kept),
      statistics_begin_(statistics_begin(*parts.arena)),
      rate_(static_cast<float>(sync::recipe_of(job.sync).lr)),
      code_(parts.arena->layout(), parts.arena->first_statistic(), job.sync.keep),
      weights_(parts.arena->layout().block_elements()),
      own_(static_cast<size_t>(job.sync.replicas)),
      sent_(own_.size(), code_.empty()),
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
    Header header = {.replica = static_cast<uint32_t>(number),
                     .finite = replica.finite ? 1u : 0u,
                     .size = body.size(),
                     .hash = 0};
    header.hash = hash_of(header, body);
    std::memcpy(out_.data() + at, &header, sizeof(header));
  }
}

Result<bool> SparseRounds::exchange(int64_t /*round*/, const Peers& peers) {
  pack(peers.replicas);
  MUSTER_TRY(const auto notices, exchange_notices(peers));
  bool finite = std::ranges::all_of(notices, [](const Notice& n) { return n.finite != 0; });
  if (!finite) return false;
  MUSTER_RETURN_IF_ERROR(exchange_messages(notices, peers));
  MUSTER_RETURN_IF_ERROR(unpack(notices, peers, finite));
  return finite && merge();
}

Result<std::vector<SparseRounds::Notice>> SparseRounds::exchange_notices(const Peers& peers) {
  auto& group = peers.group;
  std::vector<Notice> notices(static_cast<size_t>(group.size()));
  notices[static_cast<size_t>(group.rank())] = {
      .size = out_.size(),
      .weights = hash64(weights_.data(), weights_.size() * sizeof(float)),
      .finite = peers.finite ? 1u : 0u};
  {
    const WaitingForPeers waiting(peers.vitals);
    MUSTER_RETURN_IF_ERROR(group.allgather(std::span(notices), {.timeout = peers.timeout}));
  }
  const size_t statistics = (weights_.size() - statistics_begin_) * sizeof(float);
  const size_t largest = own_.size() * (sizeof(Header) + code_.largest_size() + statistics);
  for (const Notice& notice : notices) {
    const bool same = notice.weights == notices[0].weights;
    if (same && notice.size <= largest) continue;
    // All workers see this. They begin again with the last commit, so it does not matter whose
    // memory is wrong, as long as it was not so before that; audits look for that.
    const std::string_view what =
        same ? "a worker's message at the end of a round is too long"
             : "the workers have different weights at the end of a round: a bit of memory was "
               "flipped somewhere";
    group.abort(std::string(what));
    return Error(ErrorKind::kInternal, "{}", what);
  }
  return notices;
}

Status SparseRounds::exchange_messages(std::span<const Notice> notices, const Peers& peers) {
  auto& group = peers.group;
  const comm::OpOptions options = {.timeout = peers.timeout};
  const auto rank = static_cast<size_t>(group.rank());
  size_t total = 0;
  room_ = 0;
  for (const Notice& notice : notices) {
    total += notice.size;
    room_ = std::max<size_t>(room_, notice.size);
  }
  all_.resize(room_ * notices.size());
  std::ranges::copy(out_, all_.begin() + static_cast<ptrdiff_t>(rank * room_));
  const WaitingForPeers waiting(peers.vitals);
  // Parts of an allgather have one size, which is good if all messages are about that long.
  if (all_.size() <= total + total / 8) return group.allgather(std::span(all_), options);
  for (size_t member = 0; member < notices.size(); ++member) {
    const auto message = std::span(all_).subspan(member * room_, notices[member].size);
    if (message.empty()) continue;
    MUSTER_RETURN_IF_ERROR(group.broadcast(message, static_cast<int>(member), options));
    peers.vitals.note_progress();
  }
  return {};
}

Status SparseRounds::unpack(std::span<const Notice> notices, const Peers& peers, bool& finite) {
  std::vector<bool> there(own_.size());
  for (size_t member = 0; member < notices.size(); ++member) {
    const auto from = std::span(all_).subspan(member * room_, notices[member].size);
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
    if (hash_of(header, body) != header.hash) return false;
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
