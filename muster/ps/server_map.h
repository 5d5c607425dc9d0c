// Which servers there are, and which of them holds a shard.
//
// No table says where a shard is: that follows from the servers, by rendezvous hashing (highest
// random weight). For each shard all servers are ordered; the first one is its primary, the second
// one its backup. If a server goes, its shards go to those that were next in order, and all others
// stay where they are: what was the backup of a shard is then its primary. If a server comes, it
// takes an equal part from each of the others.
//
// The order. By a hash of (shard, id of the server), but first comes the best server of each host,
// then the second best of each, and so on. So while all servers are there, the two copies of a
// shard are on different hosts, if there are several. For that a server that is gone keeps its
// place among those of its host (`ServerMap::away`): if the others moved up, one of them could come
// before a server that has the shard. As long as a server is gone, both copies of some shards may
// therefore be on one host.
//
// A server that comes is `joining` at first. It gets copies of the shards that it will hold while
// the others go on serving them, and says when it has them all. Then the coordinator makes it
// ready, one server in an epoch, and not before all servers have entered the epoch before. So a
// shard never moves to a server that does not have it, and of its last two primaries at least one
// knows of the other.
//
// Each change has a number, the epoch. Servers go through all epochs in their order, also through
// those that they heard of too late, because what a server has of a shard is good only if it took
// part in every epoch; therefore a map comes with those before it (`MapHistory`).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "muster/base/result.h"

namespace muster::ps {

using ShardNumber = uint32_t;
ShardNumber shard_of(uint64_t key, ShardNumber shards);

// A server process. One that was started again in the same place has lost what it had: the same
// `id`, which orders it, and another `incarnation`.
struct ServerKey {
  std::string id;
  uint64_t incarnation = 0;
  auto operator<=>(const ServerKey&) const = default;
};

struct ServerEntry {
  ServerKey key;
  bool ready = false;   // else it is joining
  std::string address;  // host:port
  int64_t process = 0;  // its id on its machine
  std::string host;     // its machine, by whatever name; the same in all epochs for an id
  bool operator==(const ServerEntry&) const = default;
};

struct ServerPlace {
  std::string id;
  std::string host;
  bool operator==(const ServerPlace&) const = default;
};

struct ServerMap {
  uint64_t epoch = 0;  // 0: there is no map yet
  std::vector<ServerEntry> servers;
  // Of ids that were ready once and are not now: they are gone, or joining again.
  std::vector<ServerPlace> away;
  bool operator==(const ServerMap&) const = default;

  const ServerEntry* find(const ServerKey& key) const;
};

enum class ShardRole : uint8_t { kNone, kPrimary, kFollower };

// Who has a shard in one epoch.
struct Holders {
  std::optional<ServerKey> primary;
  // The backup, and servers that are joining and will hold it.
  std::vector<ServerKey> followers;

  ShardRole role_of(const ServerKey& server) const;
};
// `copies`: 1 or 2.
Holders holders_of(ShardNumber shard, const ServerMap& map, int copies);

// The newest map and the ones before it, as many as a server may have missed.
class MapHistory {
 public:
  static constexpr size_t kKept = 32;

  const ServerMap& newest() const { return maps_.back(); }
  // Its epoch must be the one after the newest.
  void add(ServerMap map);
  // Those after `epoch`, oldest first; an error if some of them are not kept any more.
  Result<std::vector<ServerMap>> since(uint64_t epoch) const;

 private:
  std::deque<ServerMap> maps_ = {ServerMap{}};
};

}  // namespace muster::ps
