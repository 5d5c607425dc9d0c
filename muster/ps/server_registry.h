// The coordinator's part: which servers there are, who is ready, and who is removed.
//
// The rules on which shard_copy.h and server_core.h rely:
// - A server is removed when its process has ended, or when it was silent for longer than its
//   lease, `patience`; its key never counts again. If all are silent nobody is removed, and if the
//   coordinator itself was away it blames nobody: it is better to wait than to lose shards.
// - A server that joins is not ready before it has said that it has all shards that it will hold,
//   and all others have entered the newest epoch; one server in an epoch.
// - A second server with the same id waits until the first one is removed.
// Epoch 1 begins when `first` servers are there; all of them are ready.
//
// A coordinator that was started again knows nothing of its servers: they wait, and keep what they
// have, because it never gives out an epoch before the one that they are in.
//
// Pure: no clock, no thread, no connection.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "muster/base/clock.h"
#include "muster/ps/server_map.h"

namespace muster::ps {

struct RegistryOptions {
  size_t first = 1;
  Duration lease = std::chrono::milliseconds(300);
  // Longer than the lease by more than clocks of two machines differ in that time.
  Duration patience = std::chrono::milliseconds(350);
};

struct Heartbeat {
  ServerKey key;
  uint64_t entered = 0;  // the newest epoch that it has entered; 0: none
  bool has_all = false;  // ServerCore::has_all
  std::string address;   // where others reach it
  int64_t process = 0;
};

struct HeartbeatReply {
  enum class Standing : uint8_t {
    kMember,
    kWaiting,  // for the first map, or for the end of one with the same id
    kRemoved,  // it must start again, under another incarnation
  };
  Standing standing = Standing::kWaiting;
  Duration lease{0};            // from when the heartbeat was sent
  std::vector<ServerMap> maps;  // those after `entered`
};

class ServerRegistry {
 public:
  explicit ServerRegistry(const RegistryOptions& options) : options_(options) {}

  HeartbeatReply heard(const Heartbeat& heartbeat, Moment now);
  // Removes those who were silent for too long, and says who. To be called several times in
  // `patience`.
  std::vector<ServerKey> expire(Moment now);
  // Its process has ended, says whoever started it: it is removed without waiting for its lease. A
  // connection that breaks is not enough, as the server may go on.
  void ended(const ServerKey& key);

  const MapHistory& maps() const { return maps_; }

 private:
  struct Server {
    Moment heard;
    std::string address;
    int64_t process = 0;
    uint64_t joined = 0;  // the first epoch in which it was; 0: it waits
    bool ended = false;
    uint64_t entered = 0;
  };
  void join(const ServerKey& key);
  void begin();
  bool all_entered() const;
  void make_ready(const ServerKey& key);
  ServerMap next_map() const;

  const RegistryOptions options_;
  Moment looked_;  // when expire() was called last
  MapHistory maps_;
  std::map<ServerKey, Server> servers_;  // all that ever were
};

}  // namespace muster::ps
