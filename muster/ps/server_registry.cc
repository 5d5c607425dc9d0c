#include "muster/ps/server_registry.h"

#include <algorithm>
#include <utility>

namespace muster::ps {

ServerMap ServerRegistry::next_map() const {
  ServerMap map = maps_.newest();
  ++map.epoch;
  return map;
}

HeartbeatReply ServerRegistry::heard(const Heartbeat& heartbeat, Moment now) {
  using Standing = HeartbeatReply::Standing;
  const ServerKey& key = heartbeat.key;
  auto& server = servers_[key];
  const bool removed = server.joined > 0 && maps_.newest().find(key) == nullptr;
  if (removed || server.ended) return {Standing::kRemoved, {}, {}};
  if (heartbeat.entered > maps_.newest().epoch) return {};
  server.heard = now;
  server.entered = heartbeat.entered;
  server.address = heartbeat.address;
  server.process = heartbeat.process;
  if (server.joined == 0) join(key);
  if (server.joined == 0) return {};
  const auto* const entry = maps_.newest().find(key);
  if (!entry->ready && heartbeat.has_all && all_entered()) make_ready(key);
  auto maps = maps_.since(heartbeat.entered > 0 ? heartbeat.entered : server.joined - 1);
  if (!maps.ok()) return {Standing::kRemoved, {}, {}};
  return {Standing::kMember, options_.lease, *std::move(maps)};
}

void ServerRegistry::join(const ServerKey& key) {
  const auto& there = maps_.newest().servers;
  if (maps_.newest().epoch == 0) return begin();
  const bool taken = std::ranges::any_of(
      there, [&](const ServerEntry& server) { return server.key.id == key.id; });
  if (taken) return;
  ServerMap map = next_map();
  map.servers.push_back({key, false, servers_[key].address, servers_[key].process});
  servers_[key].joined = map.epoch;
  maps_.add(std::move(map));
}

void ServerRegistry::begin() {
  // Of one that was started again both may be here: the one that was heard last counts.
  std::map<std::string, ServerKey> latest;
  for (const auto& [key, server] : servers_) {
    if (server.ended) continue;
    const auto [other, fresh] = latest.emplace(key.id, key);
    if (!fresh && servers_[other->second].heard <= server.heard) other->second = key;
  }
  if (latest.size() < options_.first) return;
  ServerMap map = next_map();
  for (const auto& [id, key] : latest) {
    servers_[key].joined = map.epoch;
    map.servers.push_back({key, true, servers_[key].address, servers_[key].process});
  }
  maps_.add(std::move(map));
}

bool ServerRegistry::all_entered() const {
  return std::ranges::all_of(maps_.newest().servers, [&](const ServerEntry& server) {
    return servers_.at(server.key).entered == maps_.newest().epoch;
  });
}

void ServerRegistry::make_ready(const ServerKey& key) {
  ServerMap map = next_map();
  std::ranges::find(map.servers, key, &ServerEntry::key)->ready = true;
  maps_.add(std::move(map));
}

std::vector<ServerKey> ServerRegistry::expire(Moment now) {
  // Whoever was suspended has heard nobody.
  const Moment before = std::exchange(looked_, now);
  if (before != Moment{} && now - before > options_.patience / 2) {
    for (auto& [key, server] : servers_)
      server.heard = std::min(now, server.heard + (now - before));
  }
  const auto is_silent = [&](const Server& server) {
    return now - server.heard > options_.patience;
  };
  // Who still waits is forgotten, and may come back.
  std::erase_if(servers_, [&](const auto& one) {
    return one.second.joined == 0 && !one.second.ended && is_silent(one.second);
  });
  std::vector<ServerKey> removed;
  ServerMap map = next_map();
  std::erase_if(map.servers, [&](const ServerEntry& entry) {
    const bool silent = is_silent(servers_.at(entry.key));
    if (silent) removed.push_back(entry.key);
    return silent;
  });
  const bool any_left = std::ranges::any_of(map.servers, &ServerEntry::ready);
  if (removed.empty() || !any_left) return {};
  maps_.add(std::move(map));
  return removed;
}

void ServerRegistry::ended(const ServerKey& key) {
  servers_[key].ended = true;
  if (maps_.newest().find(key) == nullptr) return;
  ServerMap map = next_map();
  std::erase_if(map.servers, [&](const ServerEntry& entry) { return entry.key == key; });
  maps_.add(std::move(map));
}

}  // namespace muster::ps
