#include "muster/train/step/replica_sums.h"

#include <algorithm>

#include "muster/base/hash.h"
#include "muster/exact/packed_ints.h"
#include "muster/train/step/replica_messages.h"

namespace muster::train {

ReplicaSums::ReplicaSums(const config::Job& job, const exact::BlockLayout& layout, size_t late,
                         Memory& memory)
    : job_(job), layout_(layout), late_(late), memory_(memory) {}

ReplicaSums::~ReplicaSums() = default;

size_t ReplicaSums::add(const Sum& of) {
  Entry entry;
  entry.of = of;
  entry.sum =
      std::make_unique<GradientSum>(layout_, static_cast<int>(job_.sync.replicas),
                                    bucket_bytes(job_.sync.bucket, of.bits), late_, memory_);
  entry.sum->set_rounding({.stochastic = job_.sync.rounding == "stochastic" || of.bits < 32,
                           .seed = hash64(&of.buffer, sizeof(of.buffer), job_.seed),
                           .bits = static_cast<int>(of.bits),
                           .rotated = of.rotated});
  entry.exponents.resize(layout_.blocks().size());
  sums_.push_back(std::move(entry));
  return sums_.size() - 1;
}

// The replicas of this worker that add to a sum.
std::vector<int> ReplicaSums::adding(const Sum& sum, std::span<const int> replicas) {
  if (sum.only < 0) return {replicas.begin(), replicas.end()};
  if (std::ranges::find(replicas, sum.only) == replicas.end()) return {};
  return {sum.only};
}

void ReplicaSums::fill(Entry& entry, std::span<const int> adding, const Values& values,
                       const Vitals& vitals) {
  for (const int replica : adding) {
    const auto from = values(entry.of.buffer, replica);
    for (size_t t = layout_.tensors(); t-- > 0;) {
      if (layout_.first_block(t) == layout_.first_block(t + 1)) continue;
      entry.sum->add(replica, t, from.data() + layout_.tensor_begin(t));
      vitals.note_progress();
    }
  }
  entry.sum->flush();
}

Result<bool> ReplicaSums::exchange(std::span<const int> replicas, const Values& values,
                                   int64_t number, comm::Group& group, Duration timeout,
                                   const Vitals& vitals) {
  if (sums_.empty()) return true;
  const size_t blocks = layout_.blocks().size();
  std::vector<uint8_t> largest;
  largest.reserve(sums_.size() * blocks);
  for (Entry& entry : sums_) {
    const auto own = adding(entry.of, replicas);
    entry.sum->begin(GradientSum::Mode::kDry, entry.exponents, own, number);
    fill(entry, own, values, vitals);
    largest.insert(largest.end(), entry.sum->seen().begin(), entry.sum->seen().end());
  }
  {
    const WaitingForPeers waiting(vitals);
    MUSTER_RETURN_IF_ERROR(group.allreduce_max(largest, {.timeout = timeout}));
  }
  if (std::ranges::find(largest, exact::kNotFinite) != largest.end()) return false;
  const uint64_t common = hash64(largest.data(), largest.size(), static_cast<uint64_t>(number));
  const bool by_messages = group.size() > 1 && !group.shares_memory();
  auto from = largest.begin();
  exchange_.set_vitals(&vitals);
  for (Entry& entry : sums_) {
    std::copy_n(from, blocks, entry.exponents.begin());
    from += static_cast<ptrdiff_t>(blocks);
    const auto own = adding(entry.of, replicas);
    entry.sum->begin(GradientSum::Mode::kExact, entry.exponents, own, number);
    if (entry.of.only >= 0 && by_messages) {
      fill(entry, own, values, vitals);
      continue;
    }
    // Where only one replica adds something, all others have zeros.
    exchange_.begin(*entry.sum, group, {.timeout = timeout, .pack = entry.of.only >= 0});
    fill(entry, own, values, vitals);
    const WaitingForPeers waiting(vitals);
    MUSTER_RETURN_IF_ERROR(exchange_.finish());
  }
  if (by_messages) {
    MUSTER_RETURN_IF_ERROR(send_to_all(replicas, common, group, timeout, vitals));
  }
  return true;
}

// In one exchange: a bucket of each replica.
Status ReplicaSums::send_to_all(std::span<const int> replicas, uint64_t common, comm::Group& group,
                                Duration timeout, const Vitals& vitals) {
  std::vector<std::vector<GradientSum*>> of_replica(static_cast<size_t>(job_.sync.replicas));
  size_t largest = 0;
  size_t sums = 0;
  for (const Entry& entry : sums_) {
    if (entry.of.only < 0) continue;
    auto& theirs = of_replica[static_cast<size_t>(entry.of.only)];
    theirs.push_back(entry.sum.get());
    sums = std::max(sums, theirs.size());
    for (const size_t bucket : entry.sum->exchange_order()) {
      largest = std::max(largest, entry.sum->int_bucket(bucket).size());
    }
  }
  if (sums == 0) return {};
  const size_t room = exact::largest_packed_size(largest);
  if (messages_ == nullptr) {
    messages_ = std::make_unique<ReplicaMessages>(of_replica.size(), room, nullptr);
  }
  const RoundExchange::Peers peers{
      .replicas = replicas, .group = group, .timeout = timeout, .vitals = vitals};
  // The integers of the next exchange of a replica; none: it has fewer than others.
  const auto next = [&](size_t replica, size_t sum, size_t bucket) {
    const auto& theirs = of_replica[replica];
    const bool has = sum < theirs.size() && bucket < theirs[sum]->exchange_order().size();
    return has ? theirs[sum]->int_bucket(bucket) : std::span<int32_t>();
  };
  for (size_t sum = 0; sum < sums; ++sum) {
    size_t buckets = 0;
    for (const auto& theirs : of_replica) {
      if (sum < theirs.size()) buckets = std::max(buckets, theirs[sum]->exchange_order().size());
    }
    for (size_t bucket = 0; bucket < buckets; ++bucket) {
      messages_->clear();
      for (const int replica : replicas) {
        const auto ints = next(static_cast<size_t>(replica), sum, bucket);
        auto& out = messages_->begin(replica);
        const size_t begin = out.size();
        out.resize(begin + exact::largest_packed_size(ints.size()));
        out.resize(begin + exact::pack(ints, out.data() + begin));
        messages_->end(true);
      }
      const uint64_t place = hash64(&bucket, sizeof(bucket), common + sum);
      MUSTER_TRY(const bool finite, messages_->exchange(place, peers));
      if (!finite) {
        group.abort("a worker says that it has values that are not finite, after it has said not");
        return Error(ErrorKind::kInternal, "workers disagree about what is finite");
      }
      for (size_t replica = 0; replica < of_replica.size(); ++replica) {
        if (peers.owns(static_cast<int>(replica))) continue;
        if (exact::unpack(messages_->of(replica), next(replica, sum, bucket))) continue;
        return ReplicaMessages::unreadable(replica, peers);
      }
    }
  }
  return {};
}

}  // namespace muster::train
