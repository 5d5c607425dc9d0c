#include "muster/ps/server_map.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/hash.h"
#include "muster/ps/rows.h"

namespace muster::ps {
namespace {

// The larger, the earlier in the order of servers for this shard.
uint64_t weight_of(ShardNumber shard, const std::string& id) {
  return hash64(id.data(), id.size(), hash_of_key(shard));
}

// A place in the order of servers for a shard.
struct Place {
  uint64_t weight = 0;
  std::string_view id;
  std::string_view host;
  const ServerKey* key = nullptr;  // null: nobody is there
  size_t level = 0;                // how many of the same host are before it
};

// The first `count` servers of the order that are ready, and `joiner` as if it were, if there is
// one.
std::vector<const ServerKey*> first_of(ShardNumber shard, const ServerMap& map,
                                       const ServerEntry* joiner, size_t count) {
  std::vector<Place> places;
  places.reserve(map.servers.size() + map.away.size());
  const auto add = [&](const std::string& id, const std::string& host, const ServerKey* key) {
    places.push_back({weight_of(shard, id), id, host, key, 0});
  };
  for (const auto& server : map.servers) {
    if (server.ready) add(server.key.id, server.host, &server.key);
  }
  bool has_place = joiner == nullptr;
  for (const auto& [id, host] : map.away) {
    const bool joins = joiner != nullptr && joiner->key.id == id;
    add(id, host, joins ? &joiner->key : nullptr);
    has_place = has_place || joins;
  }
  if (!has_place) add(joiner->key.id, joiner->host, &joiner->key);
  const auto better = [](const Place& a, const Place& b) {
    return std::tie(a.weight, a.id) > std::tie(b.weight, b.id);
  };
  std::ranges::sort(places, better);
  std::map<std::string_view, size_t> levels;
  for (auto& place : places) place.level = levels[place.host]++;
  std::ranges::sort(places, [&](const Place& a, const Place& b) {
    return a.level != b.level ? a.level < b.level : better(a, b);
  });
  std::vector<const ServerKey*> first;
  for (const auto& place : places) {
    if (place.key != nullptr && first.size() < count) first.push_back(place.key);
  }
  return first;
}

}  // namespace

ShardNumber shard_of(uint64_t key, ShardNumber shards) {
  // The upper bits of the hash: those below choose the place within a shard (rows.h).
  const auto hash = static_cast<unsigned __int128>(hash_of_key(key));
  return static_cast<ShardNumber>(hash * shards >> 64);
}

const ServerEntry* ServerMap::find(const ServerKey& key) const {
  const auto found = std::ranges::find(servers, key, &ServerEntry::key);
  return found == servers.end() ? nullptr : &*found;
}

ShardRole Holders::role_of(const ServerKey& server) const {
  if (primary == server) return ShardRole::kPrimary;
  const bool follows = std::ranges::find(followers, server) != followers.end();
  return follows ? ShardRole::kFollower : ShardRole::kNone;
}

Holders holders_of(ShardNumber shard, const ServerMap& map, int copies) {
  MUSTER_CHECK(copies == 1 || copies == 2, "a shard has one copy or two");
  const auto count = static_cast<size_t>(copies);
  Holders holders;
  const auto first = first_of(shard, map, nullptr, count);
  if (first.empty()) return holders;
  holders.primary = *first[0];
  if (first.size() > 1) holders.followers.push_back(*first[1]);
  for (const auto& server : map.servers) {
    if (server.ready) continue;
    const auto then = first_of(shard, map, &server, count);
    if (std::ranges::find(then, &server.key) != then.end()) {
      holders.followers.push_back(server.key);
    }
  }
  return holders;
}

void MapHistory::add(ServerMap map) {
  MUSTER_CHECK(map.epoch == newest().epoch + 1, "epochs follow each other");
  maps_.push_back(std::move(map));
  if (maps_.size() > kKept) maps_.pop_front();
}

Result<std::vector<ServerMap>> MapHistory::since(uint64_t epoch) const {
  if (epoch + 1 < maps_.front().epoch) {
    return Error(ErrorKind::kIo, "epochs {} to {} are not known any more", epoch + 1,
                 maps_.front().epoch - 1);
  }
  std::vector<ServerMap> maps;
  for (const auto& map : maps_) {
    if (map.epoch > epoch) maps.push_back(map);
  }
  return maps;
}

}  // namespace muster::ps
