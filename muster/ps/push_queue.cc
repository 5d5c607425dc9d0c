#include "muster/ps/push_queue.h"

#include <algorithm>
#include <utility>

namespace muster::ps {

PushQueue::PushQueue(uint64_t client, ShardNumber shards, int copies, PushLinks& links)
    : client_(client), copies_(copies), links_(links), shards_(shards) {}

const ServerKey* PushQueue::primary_of(ShardNumber shard) const {
  const auto& primary = shards_[shard].primary;
  return primary ? &*primary : nullptr;
}

uint64_t PushQueue::push(ShardNumber number, Bytes bytes) {
  auto& shard = shards_[number];
  shard.unanswered.push_back({client_, ++shard.last, std::move(bytes)});
  ++unanswered_;
  if (shard.primary) links_.send(*shard.primary, number, map_.epoch, shard.unanswered.back());
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
  const auto& shard = shards_[number];
  if (!shard.primary) return;
  for (const auto& push : shard.unanswered) {
    if (push.number >= from_number) links_.send(*shard.primary, number, map_.epoch, push);
  }
}

Status PushQueue::answered(const PushAnswer& answer) {
  auto& unanswered = shards_[answer.shard].unanswered;
  switch (answer.verdict) {
    case PushVerdict::kApplied:
      // A server applies the pushes of a client in their order.
      while (!unanswered.empty() && unanswered.front().number <= answer.number) {
        unanswered.pop_front();
        --unanswered_;
      }
      return {};
    case PushVerdict::kOtherEpoch:
      // If the server is ahead, the newest map is under way to here.
      if (answer.epoch < map_.epoch && std::ranges::find(late_, answer.shard) == late_.end()) {
        late_.push_back(answer.shard);
      }
      return {};
    case PushVerdict::kGap:
      if (answer.epoch != map_.epoch) return {};
      if (!unanswered.empty() && answer.number < unanswered.front().number) {
        return Error(ErrorKind::kInternal,
                     "shard {} expects push {} of this client, which was answered; the next one is {}",
                     answer.shard, answer.number, unanswered.front().number);
      }
      send_all(answer.shard, answer.number);
      return {};
    case PushVerdict::kLost:
      return {};
    case PushVerdict::kMalformed:
      return Error(ErrorKind::kInternal, "push {} to shard {} was refused: {}", answer.number,
                   answer.shard, answer.reason);
  }
  return {};
}

void PushQueue::retry() {
  for (const ShardNumber shard : std::exchange(late_, {})) send_all(shard);
}

}  // namespace muster::ps
