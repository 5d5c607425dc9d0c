#include "muster/ps/server_registry.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace muster::ps {

ServerMap ServerRegistry::next_map() const {
  ServerMap map = maps_.newest();
  ++map.epoch;
  return map;
}

void ServerRegistry::add(ServerMap map) {
  if (std::ranges::none_of(map.servers, &ServerEntry::ready)) {
    for (auto& server : map.servers) {
      server.ready = true;
      std::erase_if(map.away, [&](const ServerPlace& place) { return place.id == server.key.id; });
    }
  }
  maps_.add(std::move(map));
}

HeartbeatReply ServerRegistry::heard(const Heartbeat& heartbeat, Moment now) {
  using Standing = HeartbeatReply::Standing;
  const ServerKey& key = heartbeat.key;
  const auto known = servers_.find(key);
  const bool is_member = known != servers_.end() && known->second.joined > 0;
  if (!is_member && heartbeat.entered > 0) {
    return {Standing::kRemoved, {}, {}, "its rows are of another registry, of this job or another"};
  }
  auto& server = servers_[key];
  const bool removed = server.joined > 0 && maps_.newest().find(key) == nullptr;
  if (removed || server.ended || !server.reason.empty()) {
    return {Standing::kRemoved, {}, {}, server.reason};
  }
  server.heard = server.beaten = now;
  server.last = heartbeat;
  if (server.joined == 0) join(key, now);
  if (server.joined == 0) return {Standing::kWaiting, options_.lease, {}, {}};
  const auto* const entry = maps_.newest().find(key);
  if (!entry->ready && heartbeat.has_all && all_entered()) make_ready(key);
  auto maps = maps_.since(heartbeat.entered > 0 ? heartbeat.entered : server.joined - 1);
  if (!maps.ok()) return {Standing::kRemoved, {}, {}, {}};
  return {Standing::kMember, options_.lease, *std::move(maps), {}};
}

ServerEntry ServerRegistry::entry_of(const ServerKey& key, bool ready) const {
  const Heartbeat& last = servers_.at(key).last;
  return {key, ready, last.address, last.process, last.host};
}

void ServerRegistry::join(const ServerKey& key, Moment now) {
  if (maps_.newest().epoch == 0) return begin();
  const std::string& address = servers_.at(key).last.address;
  const bool taken = std::ranges::any_of(maps_.newest().servers, [&](const ServerEntry& server) {
    return server.key.id == key.id || (!address.empty() && server.address == address);
  });
  if (taken || is_quarantined(key.id, now)) return;
  ServerMap map = next_map();
  ServerEntry entry = entry_of(key, false);
  const auto place = std::ranges::find(map.away, key.id, &ServerPlace::id);
  if (place != map.away.end()) entry.host = place->host;
  map.servers.push_back(std::move(entry));
  servers_[key].joined = map.epoch;
  add(std::move(map));
}

void ServerRegistry::begin() {
  // Of one that was started again both may be here: the one that was heard last counts.
  std::map<std::string, ServerKey> latest;
  for (const auto& [key, server] : servers_) {
    if (server.ended) continue;
    const auto [other, fresh] = latest.emplace(key.id, key);
    if (!fresh && servers_[other->second].heard <= server.heard) other->second = key;
  }
  // As of those that join: of two at one address the one that was heard first has ended.
  std::erase_if(latest, [&](const auto& entry) {
    const Server& server = servers_[entry.second];
    return std::ranges::any_of(latest, [&](const auto& other) {
      const Server& later = servers_[other.second];
      return !server.last.address.empty() && other.second != entry.second &&
             later.last.address == server.last.address && later.heard >= server.heard;
    });
  });
  if (latest.size() < options_.first) return;
  ServerMap map = next_map();
  for (const auto& [id, key] : latest) {
    servers_[key].joined = map.epoch;
    map.servers.push_back(entry_of(key, true));
  }
  add(std::move(map));
}

bool ServerRegistry::all_entered() const {
  return std::ranges::all_of(maps_.newest().servers, [&](const ServerEntry& server) {
    return servers_.at(server.key).last.entered == maps_.newest().epoch;
  });
}

void ServerRegistry::make_ready(const ServerKey& key) {
  ServerMap map = next_map();
  std::ranges::find(map.servers, key, &ServerEntry::key)->ready = true;
  std::erase_if(map.away, [&](const ServerPlace& place) { return place.id == key.id; });
  quarantines_.erase(key.id);
  add(std::move(map));
}

void ServerRegistry::remove(ServerMap& map, const ServerKey& key) {
  const auto entry = std::ranges::find(map.servers, key, &ServerEntry::key);
  if (entry->ready) map.away.push_back({key.id, entry->host});
  map.servers.erase(entry);
}

std::vector<ServerKey> ServerRegistry::expire(Moment now) {
  // Whoever was suspended has heard nobody.
  const Moment before = std::exchange(looked_, now);
  if (before != Moment{} && now - before > options_.patience / 2) {
    for (auto& [key, server] : servers_)
      server.heard = std::min(now, server.heard + (now - before));
  }
  auto removed = remove_silent(now);
  note_apart(now);
  choose_removal(now);
  return removed;
}

bool ServerRegistry::is_silent(const Server& server, Moment now) const {
  return now - server.heard > options_.patience;
}

// Whether a process that was started in its place waits for it.
bool ServerRegistry::has_successor(const ServerKey& key, Moment now) const {
  return std::ranges::any_of(servers_, [&](const auto& one) {
    const auto& [other, server] = one;
    return other.id == key.id && server.joined == 0 && !server.ended && !is_silent(server, now) &&
           server.last.host == servers_.at(key).last.host;
  });
}

std::vector<ServerKey> ServerRegistry::remove_silent(Moment now) {
  // Who still waits is forgotten, and may come back.
  std::erase_if(servers_, [&](const auto& one) {
    return one.second.joined == 0 && !one.second.ended && is_silent(one.second, now);
  });
  const auto& servers = maps_.newest().servers;
  const auto silent = [&](const ServerEntry& entry) {
    return is_silent(servers_.at(entry.key), now);
  };
  const bool any_left = std::ranges::any_of(
      servers, [&](const ServerEntry& entry) { return entry.ready && !silent(entry); });
  std::vector<ServerKey> removed;
  ServerMap map = next_map();
  for (const auto& entry : servers) {
    if (!silent(entry)) continue;
    const bool successor = !any_left && has_successor(entry.key, now);
    if (!any_left && !successor) continue;
    removed.push_back(entry.key);
    remove(map, entry.key);
    const auto& reason = servers_.at(entry.key).reason;
    events_.push_back(fmt::format("{} was removed: {}", entry.key.id,
                                  successor        ? "another process has been started in its place"
                                  : reason.empty() ? "its lease expired"
                                                   : reason));
  }
  if (removed.empty()) return {};
  add(std::move(map));
  return removed;
}

void ServerRegistry::ended(const ServerKey& key) {
  servers_[key].ended = true;
  if (maps_.newest().find(key) == nullptr) return;
  ServerMap map = next_map();
  remove(map, key);
  add(std::move(map));
}

// ---- Servers that cannot reach each other.

void ServerRegistry::note_apart(Moment now) {
  const ServerMap& map = maps_.newest();
  std::map<Pair, Moment> apart;
  for (const auto& entry : map.servers) {
    for (const auto& [peer, lasted] : servers_.at(entry.key).last.unreachable) {
      if (lasted < options_.unreachable || map.find(peer) == nullptr) continue;
      const Pair pair = std::minmax(entry.key, peer);
      const auto known = apart_.find(pair);
      apart[pair] = known == apart_.end() ? now : known->second;
    }
  }
  apart_ = std::move(apart);
}

// Only if both were heard since, and had the time to fall silent: a server that has ended is out of
// reach for everyone.
std::set<ServerRegistry::Pair> ServerRegistry::long_apart(Moment now) const {
  std::set<Pair> pairs;
  for (const auto& [pair, since] : apart_) {
    const bool both =
        servers_.at(pair.first).beaten > since && servers_.at(pair.second).beaten > since;
    if (both && now - since >= options_.patience) pairs.insert(pair);
  }
  return pairs;
}

// Whether no shard is lost with it.
bool ServerRegistry::can_do_without(const ServerEntry& entry, Moment now) const {
  if (!entry.ready) return true;
  if (options_.copies < 2) return false;
  bool any = false;
  for (const auto& other : maps_.newest().servers) {
    if (!other.ready || other.key == entry.key) continue;
    const Server& server = servers_.at(other.key);
    const Heartbeat& last = server.last;
    // It may be gone: its lease decides that first.
    if (now - server.beaten > options_.patience / 2) return false;
    if (last.entered != maps_.newest().epoch || !last.complete) return false;
    any = true;
  }
  return any;
}

void ServerRegistry::choose_removal(Moment now) {
  const ServerMap& map = maps_.newest();
  const auto goes = [&](const ServerEntry& one) { return !servers_.at(one.key).reason.empty(); };
  if (std::ranges::any_of(map.servers, goes)) return;  // one at a time
  std::map<ServerKey, std::vector<std::string>> others;
  for (const auto& [a, b] : long_apart(now)) {
    others[a].push_back(b.id);
    others[b].push_back(a.id);
  }
  const ServerEntry* worst = nullptr;
  const auto rank = [&](const ServerEntry& one) {
    return std::tuple(!one.ready, others.at(one.key).size(), one.key);
  };
  for (const auto& [key, ids] : others) {
    const auto* const entry = map.find(key);
    if (!can_do_without(*entry, now)) continue;
    if (worst == nullptr || rank(*worst) < rank(*entry)) worst = entry;
  }
  if (worst == nullptr) return;
  auto& reason = servers_[worst->key].reason;
  reason = fmt::format(
      "it and {} could not reach each other: check --host, and firewalls between their hosts",
      fmt::join(others[worst->key], ", "));
  auto& quarantine = quarantines_[worst->key.id];
  const Duration time = std::max(quarantine.next, options_.quarantine);
  quarantine = {now + time, std::min(2 * time, options_.longest_quarantine), reason};
  events_.push_back(fmt::format("{} is going to be removed: {}", worst->key.id, reason));
}

bool ServerRegistry::is_quarantined(const std::string& id, Moment now) const {
  const auto found = quarantines_.find(id);
  return found != quarantines_.end() && now < found->second.until;
}

// ---- For people.

ServersStatus ServerRegistry::status(Moment now) const {
  using Standing = ServerStatus::Standing;
  const ServerMap& map = maps_.newest();
  ServersStatus status{map.epoch, options_.first, options_.copies, {}};
  for (const auto& [key, server] : servers_) {
    const auto* const entry = map.find(key);
    const bool waits = server.joined == 0 && !server.ended;
    if (entry == nullptr && !waits) continue;
    const Heartbeat& last = server.last;
    ServerStatus one;
    one.key = key;
    one.host = last.host;
    one.address = last.address;
    one.process = last.process;
    one.entered = last.entered;
    one.rows = last.rows;
    one.heard_ago = now - server.beaten;
    if (waits && is_quarantined(key.id, now)) one.reason = quarantines_.at(key.id).reason;
    if (entry != nullptr) one.standing = entry->ready ? Standing::kReady : Standing::kJoining;
    for (const auto& [peer, lasted] : last.unreachable) {
      if (map.find(peer) != nullptr) one.unreachable.push_back(peer.id);
    }
    status.servers.push_back(std::move(one));
  }
  return status;
}

}  // namespace muster::ps
