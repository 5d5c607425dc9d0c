#include "muster/train/step/replica_sums.h"

#include <algorithm>

#include "muster/base/hash.h"

namespace muster::train {

ReplicaSums::ReplicaSums(const config::Job& job, const exact::BlockLayout& layout, size_t late,
                         Memory& memory)
    : job_(job), layout_(layout), late_(late), memory_(memory) {}

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
  auto from = largest.begin();
  exchange_.set_vitals(&vitals);
  for (Entry& entry : sums_) {
    std::copy_n(from, blocks, entry.exponents.begin());
    from += static_cast<ptrdiff_t>(blocks);
    const auto own = adding(entry.of, replicas);
    entry.sum->begin(GradientSum::Mode::kExact, entry.exponents, own, number);
    // Where only one replica adds something, all others have zeros.
    exchange_.begin(*entry.sum, group, {.timeout = timeout, .pack = entry.of.only >= 0});
    fill(entry, own, values, vitals);
    const WaitingForPeers waiting(vitals);
    MUSTER_RETURN_IF_ERROR(exchange_.finish());
  }
  return true;
}

}  // namespace muster::train
