#include "muster/ps/server_core.h"

#include <utility>

#include <fmt/format.h>

namespace muster::ps {

ServerCore::ServerCore(ServerKey self, ShardNumber shards, int copies, const MakeData& make_data,
                       ShardLinks& links)
    : self_(std::move(self)), copies_(copies), links_(links), held_(shards) {
  for (ShardNumber i = 0; i < shards; ++i) {
    held_[i].data = make_data(i);
    held_[i].copy = std::make_unique<ShardCopy>(i, self_, *held_[i].data, links);
  }
}

void ServerCore::enter(std::span<const ServerMap> maps) {
  for (const auto& map : maps) {
    if (map.epoch <= epoch_) continue;
    epoch_ = map.epoch;
    for (auto& held : held_) held.copy->enter(map, copies_);
  }
}

void ServerCore::push(ShardNumber shard, uint64_t epoch, Push push) {
  if (shard < held_.size()) return copy(shard).push(epoch, std::move(push));
  links_.answer({shard, push.client, push.number, PushVerdict::kMalformed, epoch_,
                 fmt::format("there is no shard {}", shard)});
}

void ServerCore::receive(const ServerKey& from, const ShardMessage& message) {
  if (message.shard < held_.size()) copy(message.shard).receive(from, message);
}

ShardData* ServerCore::read(ShardNumber shard, uint64_t epoch, Moment now) {
  if (shard >= held_.size()) return nullptr;
  const auto& held = held_[shard];
  return now < lease_until_ && held.copy->serves(epoch) ? held.data.get() : nullptr;
}

void ServerCore::reconnected(const ServerKey& peer) {
  for (auto& held : held_) held.copy->reconnected(peer);
}

int ServerCore::send_copies(int most, const std::function<bool(const ServerKey& to)>& takes_more) {
  const int awaited = send_copies(true, most, takes_more);
  return awaited + send_copies(false, most - awaited, takes_more);
}

int ServerCore::send_copies(bool awaited, int most,
                            const std::function<bool(const ServerKey& to)>& takes_more) {
  int sent = 0;
  for (size_t looked = 0; looked < held_.size() && sent < most; ++looked) {
    auto& next = copy(next_copy_);
    next_copy_ = (next_copy_ + 1) % static_cast<ShardNumber>(held_.size());
    for (const auto& follower : awaited ? next.awaited_copies() : next.wanting_copies()) {
      if (sent == most) break;
      if (takes_more && !takes_more(follower)) continue;
      next.send_copy(follower);
      ++sent;
    }
  }
  return sent;
}

bool ServerCore::has_all() const {
  for (const auto& held : held_) {
    if (held.copy->role() != ShardRole::kNone && !held.copy->in_step()) return false;
  }
  return epoch_ > 0;
}

bool ServerCore::is_complete() const {
  for (const auto& held : held_) {
    if (held.copy->role() != ShardRole::kNone && !held.copy->complete()) return false;
  }
  return epoch_ > 0;
}

std::vector<ShardNumber> ServerCore::lost() const {
  std::vector<ShardNumber> shards;
  for (ShardNumber i = 0; i < held_.size(); ++i) {
    if (held_[i].copy->lost()) shards.push_back(i);
  }
  return shards;
}

const Error* ServerCore::failure() const {
  for (const auto& held : held_) {
    if (held.copy->failure()) return &*held.copy->failure();
  }
  return nullptr;
}

}  // namespace muster::ps
