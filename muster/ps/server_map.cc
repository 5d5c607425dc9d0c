#include "muster/ps/server_map.h"

#include <algorithm>
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

bool is_before(ShardNumber shard, const std::string& a, const std::string& b) {
  return std::pair(weight_of(shard, b), b) < std::pair(weight_of(shard, a), a);
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
  const ServerKey* first = nullptr;
  const ServerKey* second = nullptr;
  for (const auto& server : map.servers) {
    if (!server.ready) continue;
    if (first == nullptr || is_before(shard, server.key.id, first->id)) {
      second = first;
      first = &server.key;
    } else if (second == nullptr || is_before(shard, server.key.id, second->id)) {
      second = &server.key;
    }
  }
  Holders holders;
  if (first == nullptr) return holders;
  holders.primary = *first;
  if (copies == 2 && second != nullptr) holders.followers.push_back(*second);
  // The last of those that hold it now would give it away.
  const ServerKey* const last = copies == 1 ? first : second;
  for (const auto& server : map.servers) {
    if (server.ready) continue;
    if (last == nullptr || is_before(shard, server.key.id, last->id)) {
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
