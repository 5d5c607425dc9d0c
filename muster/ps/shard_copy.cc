#include "muster/ps/shard_copy.h"

#include <algorithm>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/hash.h"
#include "muster/ps/bytes.h"

namespace muster::ps {
namespace {

uint64_t chained(uint64_t chain, const Push& push) {
  const uint64_t id[] = {chain, push.client, push.number};
  return hash64(push.bytes->data(), push.bytes->size(), hash64(id, sizeof(id)));
}

bool holds(const Holders& holders, const ServerKey& server) {
  return holders.role_of(server) != ShardRole::kNone;
}

}  // namespace

ShardCopy::ShardCopy(ShardNumber shard, ServerKey self, ShardData& data, ShardLinks& links)
    : shard_(shard), self_(std::move(self)), data_(data), links_(links) {}

// ---- Epochs.

void ShardCopy::enter(const ServerMap& map, int copies) {
  MUSTER_CHECK(map.epoch == epoch_ + 1 || epoch_ == 0, "no epoch may be left out");
  const Holders holders = holders_of(shard_, map, copies);
  const bool was_primary = role_ == ShardRole::kPrimary;
  const bool same_primary = role_ == ShardRole::kFollower && holders_.primary == holders.primary;
  epoch_ = map.epoch;
  role_ = holders.role_of(self_);
  if (epoch_ == 1) complete_ = role_ != ShardRole::kNone;
  if (role_ == ShardRole::kPrimary) {
    if (!was_primary) inherited_ = place_;
    keep_followers(map, holders, was_primary);
  } else {
    // Clients repeat to the new primary what this one has not answered.
    followers_.clear();
    pending_.clear();
    repeated_.clear();
  }
  holders_ = holders;
  was_primary_ = role_ == ShardRole::kNone && (was_primary || was_primary_);
  if (role_ == ShardRole::kNone) drop();
  if (role_ == ShardRole::kFollower) {
    follow(same_primary && synced_);
  } else {
    synced_ = false;
  }
  apply_confirmed();
  for (auto& [from, message] : std::exchange(later_, {})) receive(from, message);
}

void ShardCopy::drop() {
  complete_ = false;
  place_ = chain_ = 0;
  last_numbers_.clear();
  data_.clear();
  release();
}

void ShardCopy::release() {
  if (was_primary_ && holders_.primary) tell(*holders_.primary, Release{});
}

// `holders_` are still those of the epoch before.
void ShardCopy::keep_followers(const ServerMap& map, const Holders& holders, bool was_primary) {
  std::vector<Follower> followers;
  for (const auto& key : holders.followers) {
    Follower follower{.key = key};
    const Follower* const before = was_primary ? find(key) : nullptr;
    if (before != nullptr && !before->leaving) {
      follower = *before;
      follower.wants = false;  // it asks again in this epoch, if it has to
    } else if (before != nullptr) {
      follower.required = true;
    } else if (!was_primary && epoch_ > 1) {
      follower.required = ps::holds(holders_, key);
    } else if (epoch_ == 1) {
      follower.required = follower.synced = true;
    }
    followers.push_back(std::move(follower));
  }
  const auto keep_leaving = [&](const ServerKey& key) {
    if (map.find(key) == nullptr || ps::holds(holders, key)) return;
    Follower follower{.key = key};
    follower.required = follower.leaving = true;
    followers.push_back(std::move(follower));
  };
  for (const auto& follower : followers_) {
    if (follower.leaving) keep_leaving(follower.key);
  }
  if (!was_primary && holders_.primary) keep_leaving(*holders_.primary);
  followers_ = std::move(followers);
  for (const auto& follower : followers_) {
    if (!follower.synced) continue;
    for (size_t i = 0; i < pending_.size(); ++i) {
      const uint64_t place = place_ + 1 + i;
      if (place > follower.confirmed) tell(follower.key, Forward{place, pending_[i].push});
    }
  }
}

void ShardCopy::follow(bool in_step) {
  synced_ = in_step || epoch_ == 1;
  if (!synced_) return send_ask();
  // What it confirmed in the epoch before may have been dropped.
  if (place_ > 0) tell(*holders_.primary, Confirm{place_});
}

void ShardCopy::reconnected(const ServerKey& peer) {
  // A primary waits: its follower asks.
  if (holders_.primary != peer) return;
  if (role_ == ShardRole::kNone) return release();
  if (role_ != ShardRole::kFollower) return;
  synced_ = false;
  send_ask();
}

// ---- Clients.

void ShardCopy::push(uint64_t epoch, Push push) {
  if (epoch != epoch_ || role_ != ShardRole::kPrimary) {
    return reply(push, PushVerdict::kOtherEpoch);
  }
  if (!complete_) return reply(push, PushVerdict::kLost);
  if (const auto checked = data_.check(*push.bytes); !checked.ok()) {
    return reply(push, PushVerdict::kMalformed, checked.error().message());
  }
  const auto applied = last_numbers_.find(push.client);
  if (applied != last_numbers_.end() && push.number <= applied->second) {
    repeated_.push_back(std::move(push));
    return apply_confirmed();
  }
  const uint64_t last = last_number(push.client);
  if (push.number <= last) return;  // it is pending, and will be answered
  if (push.number != last + 1) {
    push.number = last + 1;
    return reply(push, PushVerdict::kGap);
  }
  const uint64_t chain = chained(pending_.empty() ? chain_ : pending_.back().chain, push);
  pending_.push_back({std::move(push), chain});
  const uint64_t place = place_ + pending_.size();
  for (const auto& follower : followers_) {
    if (follower.synced) tell(follower.key, Forward{place, pending_.back().push});
  }
  apply_confirmed();
}

uint64_t ShardCopy::last_number(uint64_t client) const {
  for (auto pending = pending_.rbegin(); pending != pending_.rend(); ++pending) {
    if (pending->push.client == client) return pending->push.number;
  }
  const auto applied = last_numbers_.find(client);
  return applied == last_numbers_.end() ? 0 : applied->second;
}

bool ShardCopy::confirmed(uint64_t place) const {
  return std::ranges::all_of(followers_, [&](const Follower& follower) {
    return !follower.required || (!follower.leaving && follower.confirmed >= place);
  });
}

void ShardCopy::apply_confirmed() {
  if (role_ != ShardRole::kPrimary || !complete_ || !settled()) return;
  for (const auto& push : std::exchange(repeated_, {})) reply(push, PushVerdict::kApplied);
  while (!pending_.empty() && !failure_ && confirmed(place_ + 1)) {
    const Pending pending = std::move(pending_.front());
    pending_.pop_front();
    apply(pending.push, pending.chain);
    if (!failure_) reply(pending.push, PushVerdict::kApplied);
  }
}

void ShardCopy::apply(const Push& push, uint64_t chain) {
  if (const auto applied = data_.apply(*push.bytes); !applied.ok()) {
    failure_ = applied.error();
    complete_ = false;
    return;
  }
  ++place_;
  chain_ = chain;
  last_numbers_[push.client] = push.number;
}

void ShardCopy::reply(const Push& push, PushVerdict verdict, std::string reason) {
  links_.answer({shard_, push.client, push.number, verdict, epoch_, std::move(reason)});
}

// ---- Other servers.

void ShardCopy::receive(const ServerKey& from, const ShardMessage& message) {
  if (message.epoch < epoch_) return;
  if (message.epoch > epoch_) {
    later_.emplace_back(from, message);
    return;
  }
  std::visit([&](const auto& what) { take(from, what); }, message.what);
}

void ShardCopy::take(const ServerKey& from, const Forward& forward) {
  if (role_ != ShardRole::kFollower || holders_.primary != from || !synced_ || failure_) return;
  if (forward.place > place_ + 1) {  // cannot be, as messages keep their order
    synced_ = false;
    return send_ask();
  }
  if (forward.place == place_ + 1) {
    apply(forward.push, chained(chain_, forward.push));
    if (failure_) return;
  }
  tell(from, Confirm{place_});
}

void ShardCopy::take(const ServerKey& from, const Confirm& confirm) {
  Follower* const follower = find(from);
  if (follower == nullptr || !follower->synced) return;  // also: it is leaving
  follower->confirmed = std::max(follower->confirmed, confirm.place);
  apply_confirmed();
}

void ShardCopy::take(const ServerKey& from, const Ask& ask) {
  Follower* const follower = find(from);
  if (follower == nullptr || !complete_) return;
  follower->synced = false;
  follower->confirmed = 0;
  const auto chain = chain_at(ask.place);
  if (chain == ask.chain) return begin_follower(*follower, ask.place, nullptr);
  follower->wants = true;
  // Answers wait for one that is complete, so it does not wait for its turn.
  if (ask.complete && follower->required) return send_copy(from);
  follower->required = false;
  apply_confirmed();
}

void ShardCopy::take(const ServerKey& from, const Copy& copy) {
  if (role_ != ShardRole::kFollower || holders_.primary != from || failure_) return;
  if (copy.state != nullptr) {
    if (auto loaded = load(*copy.state); !loaded.ok()) {
      failure_ = std::move(loaded).error();
      complete_ = false;
      return;
    }
  }
  complete_ = synced_ = true;
  tell(from, Confirm{place_});
}

void ShardCopy::take(const ServerKey& from, const Release& /*release*/) {
  std::erase_if(followers_, [&](const Follower& follower) {
    return follower.leaving && follower.key == from;
  });
  apply_confirmed();
}

void ShardCopy::send_ask() { tell(*holders_.primary, Ask{place_, chain_, complete_}); }

std::vector<ServerKey> ShardCopy::wanting_copies() const {
  std::vector<ServerKey> wanting;
  for (const auto& follower : followers_) {
    if (follower.wants) wanting.push_back(follower.key);
  }
  return wanting;
}

void ShardCopy::send_copy(const ServerKey& key) {
  Follower* const follower = find(key);
  if (follower == nullptr || !follower->wants || !complete_) return;
  begin_follower(*follower, place_, std::make_shared<const std::string>(save()));
}

void ShardCopy::begin_follower(Follower& follower, uint64_t from_place, Bytes state) {
  follower.required = follower.synced = true;
  follower.wants = false;
  tell(follower.key, Copy{std::move(state)});
  for (uint64_t place = from_place + 1; place <= place_ + pending_.size(); ++place) {
    tell(follower.key, Forward{place, pending_[place - place_ - 1].push});
  }
}

std::optional<uint64_t> ShardCopy::chain_at(uint64_t place) const {
  if (place == place_) return chain_;
  if (place < place_ || place > place_ + pending_.size()) return std::nullopt;
  return pending_[place - place_ - 1].chain;
}

ShardCopy::Follower* ShardCopy::find(const ServerKey& key) {
  const auto found = std::ranges::find(followers_, key, &Follower::key);
  return found == followers_.end() ? nullptr : &*found;
}

void ShardCopy::tell(const ServerKey& to, decltype(ShardMessage::what) what) {
  links_.send(to, {shard_, epoch_, std::move(what)});
}

// ---- The state as bytes: place, chain, how many clients, (client, number) of each, the data.

std::string ShardCopy::save() {
  std::string state;
  append(state, place_);
  append(state, chain_);
  append(state, uint64_t{last_numbers_.size()});
  for (const auto& [client, number] : last_numbers_) {
    append(state, client);
    append(state, number);
  }
  data_.save(state);
  return state;
}

Status ShardCopy::load(std::string_view state) {
  const auto damaged = [] { return Error(ErrorKind::kIo, "the copy of a shard is damaged"); };
  uint64_t place = 0;
  uint64_t chain = 0;
  uint64_t clients = 0;
  if (!ps::take(state, place) || !ps::take(state, chain) || !ps::take(state, clients)) {
    return damaged();
  }
  std::map<uint64_t, uint64_t> numbers;
  for (uint64_t i = 0; i < clients; ++i) {
    uint64_t client = 0;
    if (!ps::take(state, client) || !ps::take(state, numbers[client])) return damaged();
  }
  MUSTER_RETURN_IF_ERROR(data_.load(state));
  place_ = place;
  chain_ = chain;
  last_numbers_ = std::move(numbers);
  return {};
}

}  // namespace muster::ps
