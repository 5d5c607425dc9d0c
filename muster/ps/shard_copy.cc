#include "muster/ps/shard_copy.h"

#include <algorithm>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/hash.h"
#include "muster/ps/bytes.h"

namespace muster::ps {
namespace {

uint64_t chained(uint64_t chain, const Push& push) {
  const uint64_t id[] = {chain, push.client, push.number, push.hash};
  return hash64(id, sizeof(id));
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
  if (failure_) {
    epoch_ = map.epoch;
    role_ = ShardRole::kNone;
    return;
  }
  const Holders holders = holders_of(shard_, map, copies);
  const bool was_primary = role_ == ShardRole::kPrimary;
  const bool same_primary = role_ == ShardRole::kFollower && holders_.primary == holders.primary;
  epoch_ = map.epoch;
  role_ = holders.role_of(self_);
  if (epoch_ == 1) complete_ = role_ != ShardRole::kNone;
  if (role_ == ShardRole::kPrimary) {
    if (!was_primary) {
      inherited_ = place_;
      settled_ = false;
    }
    keep_followers(map, holders, was_primary);
  } else {
    // Clients repeat to the new primary what this one has not answered.
    followers_.clear();
    pending_.clear();
    repeated_.clear();
  }
  holders_ = holders;
  must_release_ = role_ == ShardRole::kNone && (was_primary || must_release_);
  synced_ = role_ == ShardRole::kFollower && same_primary && synced_;
  if (role_ == ShardRole::kNone) drop();
  if (role_ == ShardRole::kFollower) synced_ ? confirm() : ask();
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
  if (must_release_ && holders_.primary) tell(*holders_.primary, Release{});
}

// `holders_` and `followers_` are still those of the epoch before.
ShardCopy::State ShardCopy::state_in_new_epoch(const ServerKey& key, bool was_primary) {
  if (epoch_ == 1) return State::kMustAsk;
  if (!was_primary) return holds(holders_, key) ? State::kMustAsk : State::kNew;
  const Follower* const before = find(key);
  if (before == nullptr) return State::kNew;
  // It asks again, if it has to.
  if (before->state == State::kWants) return State::kNew;
  const bool asks = before->state == State::kLeaving || before->state == State::kAwaited;
  return asks ? State::kMustAsk : before->state;
}

void ShardCopy::keep_followers(const ServerMap& map, const Holders& holders, bool was_primary) {
  std::vector<Follower> followers;
  for (const auto& key : holders.followers) {
    Follower follower;
    if (const auto* const before = find(key); before != nullptr) follower = *before;
    follower.key = key;
    follower.state = state_in_new_epoch(key, was_primary);
    followers.push_back(std::move(follower));
  }
  // Those who leave, until they have said so.
  const auto keep_leaving = [&](const ServerKey& key) {
    if (map.find(key) == nullptr || holds(holders, key)) return;
    Follower follower;
    follower.key = key;
    follower.state = State::kLeaving;
    followers.push_back(std::move(follower));
  };
  for (const auto& follower : followers_) {
    if (follower.state == State::kLeaving) keep_leaving(follower.key);
  }
  if (!was_primary && holders_.primary) keep_leaving(*holders_.primary);
  followers_ = std::move(followers);
  for (const auto& follower : followers_) {
    if (follower.state == State::kInStep) forward_pending(follower, follower.confirmed);
  }
}

void ShardCopy::reconnected(const ServerKey& peer) {
  std::erase_if(later_, [&](const auto& letter) { return letter.first == peer; });
  if (auto* const follower = find(peer); follower != nullptr) {
    // It asks again. Answers go on waiting for it if they did.
    if (is_waited_for(*follower)) follower->state = State::kMustAsk;
    if (follower->state == State::kWants) follower->state = State::kNew;
  }
  if (holders_.primary != peer) return;
  if (role_ == ShardRole::kNone) release();
  if (role_ == ShardRole::kFollower) ask();
}

// ---- Clients.

void ShardCopy::push(uint64_t epoch, Push push) {
  const auto answer = [&](PushVerdict verdict, std::string reason = {}) {
    reply(push.client, push.number, verdict, std::move(reason));
  };
  if (epoch != epoch_ || role_ != ShardRole::kPrimary) return answer(PushVerdict::kOtherEpoch);
  if (failure_) return;  // whoever is primary next will answer
  if (!complete_) return answer(PushVerdict::kLost);
  const auto applied = last_numbers_.find(push.client);
  if (applied != last_numbers_.end() && push.number <= applied->second) {
    repeated_.emplace_back(push.client, push.number);
    return apply_confirmed();
  }
  const uint64_t last = last_number(push.client);
  if (push.number == 0) return answer(PushVerdict::kMalformed, "pushes are counted from 1");
  if (push.number <= last) return;  // it is pending, and will be answered
  if (push.number != last + 1) return reply(push.client, last + 1, PushVerdict::kGap);
  if (const auto checked = data_.check(*push.bytes); !checked.ok()) {
    return answer(PushVerdict::kMalformed, checked.error().message());
  }
  const uint64_t chain = chained(pending_.empty() ? chain_ : pending_.back().chain, push);
  pending_.push_back({std::move(push), chain});
  for (const auto& follower : followers_) {
    if (follower.state == State::kInStep) forward_pending(follower, place_ + pending_.size() - 1);
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

bool ShardCopy::all_confirmed(uint64_t place) const {
  return std::ranges::all_of(followers_, [&](const Follower& follower) {
    switch (follower.state) {
      case State::kNew:
      case State::kWants:
        return true;
      case State::kMustAsk:
      case State::kAwaited:
      case State::kLeaving:
        return false;
      case State::kInStep:
        return follower.confirmed >= place;
    }
    return false;
  });
}

void ShardCopy::apply_confirmed() {
  if (role_ != ShardRole::kPrimary || !complete_) return;
  settled_ = settled_ || all_confirmed(inherited_);
  if (!settled_) return;
  for (const auto& [client, number] : std::exchange(repeated_, {})) {
    reply(client, number, PushVerdict::kApplied);
  }
  while (!pending_.empty() && all_confirmed(place_ + 1)) {
    const Pending next = pending_.front();
    apply(next.push, next.chain);
    if (failure_) return;
    pending_.pop_front();
    reply(next.push.client, next.push.number, PushVerdict::kApplied);
  }
}

void ShardCopy::apply(const Push& push, uint64_t chain) {
  if (auto applied = data_.apply(*push.bytes); !applied.ok()) {
    return fail(std::move(applied).error());
  }
  ++place_;
  chain_ = chain;
  last_numbers_[push.client] = push.number;
}

// It says nothing any more, to anybody.
void ShardCopy::fail(Error error) {
  failure_ = std::move(error);
  complete_ = synced_ = false;
  followers_.clear();
  pending_.clear();
  repeated_.clear();
}

void ShardCopy::reply(uint64_t client, uint64_t number, PushVerdict verdict, std::string reason) {
  links_.answer({shard_, client, number, verdict, epoch_, std::move(reason)});
}

// ---- Other servers.

void ShardCopy::receive(const ServerKey& from, const ShardMessage& message) {
  if (message.epoch < epoch_ || failure_) return;
  if (message.epoch > epoch_) {
    later_.emplace_back(from, message);
    return;
  }
  std::visit([&](const auto& what) { take(from, what); }, message.what);
}

// Whether this is from the primary, and about the last question.
bool ShardCopy::follows(const ServerKey& primary, uint64_t question) const {
  return role_ == ShardRole::kFollower && holders_.primary == primary && question == question_;
}

void ShardCopy::take(const ServerKey& from, const Forward& forward) {
  if (!follows(from, forward.question) || !synced_) return;
  if (forward.place > place_ + 1) return ask();
  if (forward.place == place_ + 1) {
    const auto last = last_numbers_.find(forward.push.client);
    if (forward.push.number != (last == last_numbers_.end() ? 0 : last->second) + 1) {
      return fail(Error(ErrorKind::kInternal, "push {} of client {:x} to shard {} is out of order",
                        forward.push.number, forward.push.client, shard_));
    }
    apply(forward.push, chained(chain_, forward.push));
    if (failure_) return;
  }
  confirm();
}

void ShardCopy::take(const ServerKey& from, const Confirm& confirm) {
  Follower* const follower = find(from);
  if (follower == nullptr || follower->state != State::kInStep) return;
  if (follower->question != confirm.question) return;
  follower->confirmed = std::max(follower->confirmed, confirm.place);
  apply_confirmed();
}

void ShardCopy::take(const ServerKey& from, const Ask& ask) {
  Follower* const follower = find(from);
  if (follower == nullptr || !complete_ || follower->state == State::kLeaving) return;
  follower->question = ask.question;
  follower->confirmed = 0;
  if (chain_at(ask.place) == ask.chain) {
    follower->confirmed = ask.place;
    begin_follower(*follower, ask.place, nullptr);
    return apply_confirmed();
  }
  // Answers go on waiting for one that is complete.
  const bool awaited = ask.complete && is_waited_for(*follower);
  follower->state = awaited ? State::kAwaited : State::kWants;
  apply_confirmed();
}

void ShardCopy::take(const ServerKey& from, const Copy& copy) {
  if (!follows(from, copy.question)) return;
  if (copy.state) {
    if (auto loaded = load(*copy.state); !loaded.ok()) return fail(std::move(loaded).error());
  }
  complete_ = synced_ = true;
  confirm();
}

void ShardCopy::take(const ServerKey& from, const Release& /*release*/) {
  std::erase_if(followers_, [&](const Follower& follower) {
    return follower.state == State::kLeaving && follower.key == from;
  });
  apply_confirmed();
}

void ShardCopy::ask() {
  synced_ = false;
  tell(*holders_.primary, Ask{++question_, place_, chain_, complete_});
}

void ShardCopy::confirm() { tell(*holders_.primary, Confirm{question_, place_}); }

std::vector<ServerKey> ShardCopy::wanting_copies() const {
  std::vector<ServerKey> wanting;
  for (const auto& follower : followers_) {
    if (wants(follower)) wanting.push_back(follower.key);
  }
  return wanting;
}

std::vector<ServerKey> ShardCopy::awaited_copies() const {
  std::vector<ServerKey> awaited;
  for (const auto& follower : followers_) {
    if (follower.state == State::kAwaited) awaited.push_back(follower.key);
  }
  return awaited;
}

void ShardCopy::send_copy(const ServerKey& key) {
  Follower* const follower = find(key);
  if (follower == nullptr || !wants(*follower) || !complete_) return;
  begin_follower(*follower, place_, Bytes(save()));
}

void ShardCopy::begin_follower(Follower& follower, uint64_t from_place, Bytes state) {
  follower.state = State::kInStep;
  tell(follower.key, Copy{follower.question, std::move(state)});
  forward_pending(follower, from_place);
}

// What is pending behind this place.
void ShardCopy::forward_pending(const Follower& follower, uint64_t from_place) {
  for (size_t i = from_place > place_ ? from_place - place_ : 0; i < pending_.size(); ++i) {
    tell(follower.key, Forward{follower.question, place_ + 1 + i, pending_[i].push});
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

bool ShardCopy::is_with(const ServerKey& server) const {
  return std::ranges::any_of(followers_, [&](const Follower& follower) {
    return follower.key == server && follower.state == State::kInStep &&
           follower.confirmed >= place_;
  });
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
