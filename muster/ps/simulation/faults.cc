// What happens to servers and clients of a simulated run.
#include <algorithm>

#include <fmt/format.h>

#include "muster/ps/simulation/cluster.h"

namespace muster::ps::simulation {

using namespace std::chrono_literals;

namespace {
constexpr size_t kMostWorkers = 30;  // of a schedule, with those that are gone
}  // namespace

void Cluster::fault() {
  if (is_calm()) {
    world_.heal_all();
    return cut_parted();
  }
  std::vector<ServerProcess*> there;
  for (const auto& server : servers_) {
    if (server->alive) there.push_back(server.get());
  }
  const uint64_t kind = world_.below(13);
  auto* victim = there.empty() ? nullptr : there[world_.below(there.size())];
  // Often the newest one: when a server has just taken over is when most can go wrong.
  if (victim != nullptr && world_.chance(0.3)) victim = there.back();
  if (victim != nullptr && kind < 6) {
    if (can_lose(*victim)) hurt(*victim, kind);
  } else if (victim != nullptr && kind == 6) {
    const int other = other_end(*victim, there);
    ++tally_.cuts;
    world_.trace("no way between {} and {}", victim->place, other);
    world_.cut(victim->place, other, world_.now() + world_.between(10ms, 800ms));
  } else if (victim != nullptr && kind == 7) {
    break_connection(victim->place, other_end(*victim, there));
    if (world_.chance(0.3)) reconnect_client();
  } else if (kind == 8) {
    replace_client();
  } else if (kind == 9) {
    suspend_coordinator();
  } else if (victim != nullptr && kind == 10) {
    world_.slow(victim->place, world_.between(1ms, 60ms),
                world_.now() + world_.between(10ms, 500ms));
  } else if (kind == 12) {
    if (victim != nullptr) part(*victim);
  } else if (there.size() < 8) {
    start_server(fmt::format("s{}", first_ + new_ids_++));
  }
  world_.after(world_.between(1ms, world_.chance(0.4) ? 40ms : 400ms), [this] { fault(); });
}

bool Cluster::at_risk(const ServerProcess& server) const {
  const auto heard = heard_.find(server.core.self());
  return !server.alive || world_.now() < server.paused_until ||
         world_.is_cut(kCoordinator, server.place) || server.data[0]->is_full() ||
         is_parted(server) || heard == heard_.end() ||
         world_.now() - heard->second > 2 * kHeartbeat;
}

// Whether a server other than `but` has no memory left, waits to get into the map, and so may fail
// when it has become ready.
bool Cluster::one_will_fail(const ServerProcess* but) const {
  return std::ranges::any_of(servers_, [&](const auto& server) {
    return server.get() != but && server->alive && map().find(server->core.self()) == nullptr &&
           server->data[0]->is_full();
  });
}

// Whether every shard is with somebody else who will stay. A server that joins and is hurt may
// still become ready, by a message that was under way; then others give up their copies. So this is
// not done to one that joins and to another at the same time: it would be a double failure.
bool Cluster::can_lose(const ServerProcess& victim) {
  const auto* const hurt = map().find(victim.core.self());
  if (copies_ == 1 || one_will_fail(&victim)) return false;
  const bool joins = hurt == nullptr || !hurt->ready;
  for (const auto& entry : map().servers) {
    const auto& server = server_of(entry.key);
    if (&server != &victim && at_risk(server) && (joins || !entry.ready)) return false;
  }
  for (ShardNumber shard = 0; shard < shards_; ++shard) {
    const bool elsewhere = std::ranges::any_of(map().servers, [&](const ServerEntry& entry) {
      const auto& server = server_of(entry.key);
      return &server != &victim && entry.ready && !at_risk(server) &&
             server.core.epoch() == map().epoch && server.core.at(shard).complete();
    });
    if (!elsewhere) return false;
  }
  return true;
}

void Cluster::hurt(ServerProcess& victim, uint64_t kind) {
  if (kind < 2) return crash(victim);
  if (kind == 2) {
    // It fails when it is given something to hold. Until then one of two that cannot reach each
    // other may rejoin, get its shards and be removed again: a double failure.
    if (parted_) return;
    world_.trace("server {} has no memory left", victim.place);
    for (auto* const data : victim.data) data->fill();
    return;
  }
  if (kind < 5) return suspend(victim);
  isolate(victim);
}

void Cluster::crash(ServerProcess& victim) {
  ++tally_.crashes;
  world_.trace("server {} crashes", victim.place);
  // If the machine is lost, only its silence tells.
  if (world_.chance(0.5)) {
    world_.after(world_.between(0ms, 20ms), [this, key = victim.core.self()] {
      registry_.ended(key);
      tell_map();
    });
  }
  restart(victim);
}

void Cluster::suspend(ServerProcess& victim) {
  ++tally_.pauses;
  victim.paused_until = world_.now() + world_.between(10ms, world_.chance(0.5) ? 300ms : 1500ms);
  world_.trace("server {} is suspended", victim.place);
  world_.at(victim.paused_until, [this, place = victim.place] {
    if (server_at(place) == nullptr || world_.now() < server_at(place)->paused_until) return;
    world_.trace("server {} continues", place);
    for (const auto& what : std::exchange(server_at(place)->inbox, {})) {
      if (auto* const server = server_at(place)) what(*server);
    }
  });
}

// From the coordinator; maybe with a client on its side, which does not hear of another primary
// either.
void Cluster::isolate(const ServerProcess& victim) {
  ++tally_.cuts;
  world_.trace("server {} is cut off from the coordinator", victim.place);
  const Moment until = world_.now() + world_.between(10ms, 1500ms);
  world_.cut(kCoordinator, victim.place, until);
  if (!world_.chance(0.7)) return;
  world_.cut(kCoordinator, clients_[world_.below(clients_.size())]->place, until);
}

// A way between two servers that does not come back. One of them has to go, so nothing else may be
// wrong.
void Cluster::part(const ServerProcess& victim) {
  const auto& all = map().servers;
  const auto is_well = [&](const ServerEntry& entry) { return !at_risk(server_of(entry.key)); };
  if (copies_ == 1 || parted_ || map().find(victim.core.self()) == nullptr) return;
  // Copies may still be on their way, as long as nothing is lost with one of the two.
  const auto is_complete = [&](const ServerEntry& entry) {
    const auto& core = server_of(entry.key).core;
    return core.epoch() == map().epoch && core.is_complete();
  };
  if (!std::ranges::all_of(all, is_well) || !std::ranges::all_of(all, is_complete)) return;
  if (one_will_fail(nullptr)) return;
  const std::string other = all[world_.below(all.size())].key.id;
  if (other == victim.core.self().id) return;
  ++tally_.parted;
  parted_.emplace(victim.core.self().id, other);
  world_.trace("no way between {} and {} for ever", parted_->first, parted_->second);
  cut_parted();
}

void Cluster::cut_parted() {
  if (!parted_) return;
  for (const auto& a : servers_) {
    for (const auto& b : servers_) {
      if (!a->alive || !b->alive || a->core.self().id != parted_->first) continue;
      if (b->core.self().id == parted_->second) world_.cut(a->place, b->place, world_.now() + 1h);
    }
  }
}

// It, or the one that takes its place, may be removed at any time.
bool Cluster::is_parted(const ServerProcess& server) const {
  const auto& id = server.core.self().id;
  return parted_ && (id == parted_->first || id == parted_->second);
}

// Maybe for longer than its patience with silent servers.
void Cluster::suspend_coordinator() {
  if (world_.now() < away_until_) return;
  away_until_ = world_.now() + world_.between(10ms, 800ms);
  world_.trace("the coordinator is suspended");
}

// Another server or a client.
int Cluster::other_end(const ServerProcess& victim, const std::vector<ServerProcess*>& there) {
  const int client = clients_[world_.below(clients_.size())]->place;
  const int server = there[world_.below(there.size())]->place;
  return server == victim.place || world_.chance(0.5) ? client : server;
}

// What it had not been told of may or may not be applied.
void Cluster::replace_client() {
  auto& client = *clients_[world_.below(clients_.size())];
  if (!client.alive || clients_.size() > (training_ == nullptr ? size_t{12} : kMostWorkers)) return;
  if (training_ != nullptr && !training_->groups().can_lose(client)) return;
  replace(client);
}

void Cluster::replace(ClientProcess& client) {
  world_.trace("client {} crashes", client.place);
  client.alive = false;
  const int place = start_client().place;
  send_map(place);
}

// The connection between the coordinator and a client breaks, and what is under way is lost. The
// next one begins with the newest map (RegistryService), and group.
void Cluster::reconnect_client() {
  const auto& client = *clients_[world_.below(clients_.size())];
  network_.break_connection(kCoordinator, client.place);
  send_map(client.place);
  if (training_ != nullptr) training_->groups().reconnected(client.place);
}

// Workers of a training are lost and suspended more often than clients otherwise.
void Cluster::fault_worker() {
  if (is_calm()) return;
  world_.after(world_.between(20ms, 500ms), [this] { fault_worker(); });
  if (world_.chance(0.05)) return lose_workers();
  if (world_.chance(0.02)) return training_->groups().audit();
  auto& client = *clients_[world_.below(clients_.size())];
  if (!client.alive || is_suspended(client) || !training_->groups().can_lose(client)) return;
  if (clients_.size() <= kMostWorkers && world_.chance(0.4)) {
    replace(client);
  } else {
    suspend(client, 5ms, world_.chance(0.7) ? 300ms : 1500ms);
  }
}

// All at once: others go back to a checkpoint. Those that are suspended are missed, and go on later
// with what they had begun.
void Cluster::lose_workers() {
  const size_t count = clients_.size();
  for (size_t i = 0; i < count; ++i) {
    auto& client = *clients_[i];
    if (!client.alive || is_suspended(client)) continue;
    if (clients_.size() <= kMostWorkers && world_.chance(0.5)) {
      replace(client);
    } else {
      suspend(client, 200ms, 1500ms);
    }
  }
}

// Maybe for so long that the others go on without it.
void Cluster::suspend(ClientProcess& client, Duration least, Duration most) {
  client.paused_at = world_.now();
  client.paused_until = world_.now() + world_.between(least, most);
  world_.trace("client {} is suspended", client.place);
  world_.at(client.paused_until, [this, place = client.place] {
    auto* const there = client_at(place);
    if (there == nullptr || is_suspended(*there)) return;
    world_.trace("client {} continues", place);
    for (const auto& what : std::exchange(there->inbox, {})) take_client(place, what);
  });
}

}  // namespace muster::ps::simulation
