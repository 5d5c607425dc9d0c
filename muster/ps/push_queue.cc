#include "muster/ps/push_queue.h"

#include <algorithm>
#include <utility>

#include "muster/base/hash.h"

namespace muster::ps {

PushQueue::PushQueue(uint64_t client, ShardNumber shards, int copies, PushLinks& links)
    : client_(client), copies_(copies), links_(links), shards_(shards) {}

const ServerKey* PushQueue::primary_of(ShardNumber shard) const {
  const auto& primary = shards_[shard].primary;
  return primary ? &*primary : nullptr;
}

bool PushQueue::awaits(const ServerKey& server) const {
  return std::ranges::any_of(shards_, [&](const Shard& shard) {
    return shard.primary == server && !shard.unanswered.empty();
  });
}

uint64_t PushQueue::push(ShardNumber number, Bytes bytes) {
  auto& shard = shards_[number];
  const uint64_t hash = hash64(bytes->data(), bytes->size());
  shard.unanswered.push_back({client_, ++shard.last, std::move(bytes), hash});
  ++unanswered_;
  if (shard.primary && !failed_)
    links_.send(*shard.primary, number, map_.epoch, shard.unanswered.back());
  return shard.last;
}

void PushQueue::enter(const ServerMap& map) {
  if (map.epoch <= map_.epoch) return;
  map_ = map;
  late_.clear();
  for (ShardNumber i = 0; i < shards_.size(); ++i) {
    shards_[i].primary = holders_of(i, map_, copies_).primary;
    send_all(i);
  }
}

void PushQueue::reconnected(const ServerKey& server) {
  for (ShardNumber i = 0; i < shards_.size(); ++i) {
    if (shards_[i].primary == server) send_all(i);
  }
}

void PushQueue::send_all(ShardNumber number, uint64_t from_number) {
  auto& shard = shards_[number];
  shard.gap = from_number;
  if (!shard.primary || failed_) return;
  for (const auto& push : shard.unanswered) {
    if (push.number >= from_number) links_.send(*shard.primary, number, map_.epoch, push);
  }
}

void PushQueue::retry_later(ShardNumber shard) {
  if (std::ranges::find(late_, shard) == late_.end()) late_.push_back(shard);
}

Status PushQueue::answered(const PushAnswer& answer) {
  if (answer.client != client_ || answer.shard >= shards_.size()) return {};
  auto& shard = shards_[answer.shard];
  auto& unanswered = shard.unanswered;
  const auto fail = [&](Error error) {
    failed_ = true;
    return error;
  };
  switch (answer.verdict) {
    case PushVerdict::kApplied:
      shard.gap = 0;
      // A server applies the pushes of a client in their order.
      while (!unanswered.empty() && unanswered.front().number <= answer.number) {
        unanswered.pop_front();
        --unanswered_;
      }
      return {};
    case PushVerdict::kOtherEpoch:
      if (answer.epoch < map_.epoch) retry_later(answer.shard);
      return {};
    case PushVerdict::kGap:
      if (answer.epoch != map_.epoch) return {};
      if (!unanswered.empty() && answer.number < unanswered.front().number) {
        return fail(Error(ErrorKind::kInternal,
                          "shard {} expects push {} of this client, which was answered; the next "
                          "one is {}",
                          answer.shard, answer.number, unanswered.front().number));
      }
      // Each push behind the gap is answered so; they are repeated once.
      if (shard.gap != answer.number) send_all(answer.shard, answer.number);
      return {};
    case PushVerdict::kLost:
      retry_later(answer.shard);
      return {};
    case PushVerdict::kMalformed:
      return fail(Error(ErrorKind::kInternal, "push {} to shard {} was refused: {}", answer.number,
                        answer.shard, answer.reason));
  }
  return {};
}

void PushQueue::retry() {
  for (const ShardNumber shard : std::exchange(late_, {})) send_all(shard);
}

}  // namespace muster::ps
