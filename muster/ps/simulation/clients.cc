// What clients do by themselves, and what all of them do with pushes.
#include <algorithm>
#include <memory>
#include <utility>

#include "muster/ps/bytes.h"
#include "muster/ps/simulation/cluster.h"

namespace muster::ps::simulation {

using namespace std::chrono_literals;

namespace {
constexpr uint64_t kMostUnanswered = 8;
}  // namespace

ClientProcess::ClientProcess(Cluster& owner, int at)
    : cluster(owner), place(at), number(owner.world().draw() | 1) {
  queue = std::make_unique<PushQueue>(number, owner.shards(), owner.copies(), *this);
}
void ClientProcess::send(const ServerKey& to, ShardNumber shard, uint64_t epoch, const Push& push) {
  cluster.push(*this, to, shard, epoch, push);
}

void Cluster::act(int place) {
  auto* const client = client_at(place);
  if (client == nullptr) return;
  if (!is_suspended(*client)) act_now(*client);
  world_.after(world_.between(1ms, 40ms), [this, place] { act(place); });
}

void Cluster::act_now(ClientProcess& client) {
  if (client.queue->wants_retry()) client.queue->retry();
  if (client.worker != nullptr) {
    if (client.worker->is_stuck()) return replace(client);
    client.worker->retry();
    client.worker->act();
  } else if (!is_calm() && client.queue->unanswered() < kMostUnanswered) {
    new_update(client);
  }
  if (world_.chance(0.5)) read(client);
}

void Cluster::act_after(int place, Duration delay) {
  world_.after(delay, [this, place] {
    auto* const client = client_at(place);
    if (client != nullptr && !is_suspended(*client)) client->worker->act();
  });
}

void Cluster::new_update(ClientProcess& client) {
  const auto shard = static_cast<ShardNumber>(world_.below(shards_));
  new_push(client, shard, update_of(shard));
}

// Of any lane of the step that is not known to be committed, or the commit of it, which others may
// have pushed too: what comes again has no effect.
std::string Cluster::update_of(ShardNumber shard) {
  const int64_t step = steps_[shard];
  if (world_.chance(0.4)) return push_bytes({.kind = PushKind::kCommit, .step = step}, {}, {});
  std::vector<uint64_t> keys;
  for (uint64_t key = world_.below(40); keys.size() < 2; ++key) {
    if (shard_of(key, shards_) == shard) keys.push_back(key);
  }
  std::vector<float> gradients;
  for (size_t i = 0; i < 2 * keys.size(); ++i) {
    gradients.push_back(static_cast<float>(world_.below(1000)) / 500 - 1);
  }
  const auto lane = static_cast<uint16_t>(world_.below(16));
  return push_bytes({.kind = PushKind::kAdd, .lane = lane, .step = step, .lr = 0.1}, keys,
                    gradients);
}

void Cluster::new_push(ClientProcess& client, ShardNumber shard, std::string bytes) {
  const int64_t id = witness_.next_push();
  RecordedData::set_id(bytes, id);
  auto shared = Bytes(std::move(bytes));
  witness_.add_push({client.place, shard, ++client.pushed[shard], shared});
  client.push(shard, id, std::move(shared));
}

void Cluster::got_answer(ClientProcess& client, const PushAnswer& answer) {
  if (answer.client != client.number) return;
  const auto taken = client.queue->answered(answer);
  if (!taken.ok()) return fail(taken.error().message());
  if (answer.verdict != PushVerdict::kApplied) return;
  std::erase_if(client.unanswered, [&](const auto& one) {
    const auto& [shard, number] = one.first;
    if (shard != answer.shard || number > answer.number) return false;
    witness_.answered(one.second);
    note_answered(shard, *witness_.push(one.second).bytes);
    ++tally_.pushes;
    return true;
  });
  if (client.worker != nullptr) client.worker->act();
}

// Clients::kUpdates.
void Cluster::note_answered(ShardNumber shard, std::string_view push) {
  PushHeader header;
  if (training_ != nullptr || !ps::take(push, header) || header.kind != PushKind::kCommit) return;
  steps_[shard] = std::max(steps_[shard], header.step + 1);
}

void Cluster::read(ClientProcess& client) {
  const auto shard = static_cast<ShardNumber>(world_.below(shards_));
  const auto* const primary = client.queue->primary_of(shard);
  if (primary == nullptr) return;
  send(client.place, place_of(*primary),
       [this, shard, least = witness_.latest(shard),
        epoch = client.queue->epoch()](ServerProcess& server) {
         if (server.core.read(shard, epoch, world_.now()) == nullptr) return;
         ++tally_.reads;
         fail(witness_.read(shard, server.core.at(shard), least));
       });
}

void Cluster::begin_again(ClientProcess& client) {
  const auto before = std::exchange(client.unanswered, {});
  client.number = world_.draw() | 1;
  client.queue = std::make_unique<PushQueue>(client.number, shards_, copies_, client);
  client.queue->enter(map());
  for (const auto& [where, id] : before) {
    client.push(where.first, id, witness_.push(id).bytes);
  }
}

}  // namespace muster::ps::simulation
