// The coordinator's part: which servers there are, who is ready, and who is removed.
//
// The rules on which shard_copy.h and server_core.h rely:
// - A server is removed when its process has ended, or when it was silent for longer than its
//   lease, `patience`; its key never counts again. If all are silent nobody is removed, and if the
//   coordinator itself was away it blames nobody: it is better to wait than to lose shards.
// - One of those that are all silent has ended if another incarnation of its id, on the same host,
//   wants its place: then it is removed. (A server that is only cut off is not started again.)
// - If nobody who is ready is left, shards are lost, as there is nobody to copy them from. Then
//   servers that join are ready at once and say so (ShardCopy::lost), and the job ends.
// - A server that joins is not ready before it has said that it has all shards that it will hold,
//   and all others have entered the newest epoch; one server in an epoch.
// - A second server with the same id waits until the first one is removed. So does one at the
//   address of another one, which can only have ended: clients would have two connections to it.
// - Of two servers that cannot reach each other, but both reach the coordinator, one is removed,
//   after `unreachable`: they would wait for each other for ever. It is one without which no shard
//   is lost: a server that joins, or any if all other ready servers were heard just now and have
//   every push that was answered. Of those it is one that joins; else the one with the most others
//   that it cannot reach, or that cannot reach it; else the one with the later id. It is told at
//   once, and removed when its lease is over. Its id waits for `quarantine`, which doubles each
//   time until it is ready again.
// Epoch 1 begins when `first` servers are there; all of them are ready.
//
// A registry takes no server that has entered an epoch which it has not given to that server: this
// one has rows of another registry, of another job or from before this one was started again. It
// must start again, without rows.
//
// Pure: no clock, no thread, no connection.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/clock.h"
#include "muster/ps/server_map.h"

namespace muster::ps {

struct RegistryOptions {
  size_t first = 1;
  Duration lease = std::chrono::milliseconds(300);
  // Longer than the lease by more than clocks of two machines differ in that time.
  Duration patience = std::chrono::milliseconds(350);
  int copies = 2;  // of a shard
  Duration unreachable = std::chrono::milliseconds(1050);
  Duration quarantine = std::chrono::seconds(10);
  Duration longest_quarantine = std::chrono::minutes(5);
};

// A server to which another one has no connection.
struct Unreachable {
  ServerKey peer;
  Duration lasted{0};
};

struct Heartbeat {
  ServerKey key;
  uint64_t entered = 0;   // the newest epoch that it has entered; 0: none
  bool has_all = false;   // ServerCore::has_all
  bool complete = false;  // ServerCore::is_complete
  std::string address;    // where others reach it
  int64_t process = 0;
  std::string host;
  uint64_t rows = 0;                     // that it holds, in all its copies
  std::vector<Unreachable> unreachable;  // of the servers of its map
};

struct HeartbeatReply {
  enum class Standing : uint8_t {
    kMember,
    kWaiting,  // for the first map, for one with the same id or address, or in quarantine
    kRemoved,  // it must start again, under another incarnation
  };
  Standing standing = Standing::kWaiting;
  Duration lease{0};  // from when the heartbeat was sent; who waits will get as long a one
  std::vector<ServerMap> maps;  // those after `entered`
  std::string reason;           // why it is removed, if that was not for its silence
};

// What there is, for people.
struct ServerStatus {
  enum class Standing : uint8_t { kReady, kJoining, kWaiting };
  ServerKey key;
  Standing standing = Standing::kWaiting;
  std::string host;
  std::string address;
  int64_t process = 0;
  uint64_t entered = 0;
  uint64_t rows = 0;
  Duration heard_ago{0};
  std::vector<std::string> unreachable;  // ids
  std::string reason;                    // why it waits, if it was removed before
};
struct ServersStatus {
  uint64_t epoch = 0;  // 0: servers are awaited
  uint64_t first = 0;  // so many
  int32_t copies = 0;
  std::vector<ServerStatus> servers;  // by key
};

class ServerRegistry {
 public:
  explicit ServerRegistry(const RegistryOptions& options) : options_(options) {}

  HeartbeatReply heard(const Heartbeat& heartbeat, Moment now);
  // Removes servers whose lease is over, and says which; chooses one to be removed because it
  // cannot reach others. To be called several times in `patience`.
  std::vector<ServerKey> expire(Moment now);
  // Which servers were removed and why, since the last call: for a log.
  std::vector<std::string> take_events() { return std::exchange(events_, {}); }
  // Its process has ended, says whoever started it: it is removed without waiting for its lease. A
  // connection that breaks is not enough, as the server may go on.
  void ended(const ServerKey& key);

  const MapHistory& maps() const { return maps_; }
  ServersStatus status(Moment now) const;

 private:
  struct Server {
    Moment heard;  // its lease counts from then
    Heartbeat last;
    Moment beaten;        // when that came
    uint64_t joined = 0;  // the first epoch in which it was; 0: it waits
    bool ended = false;
    std::string reason;  // why it is to be removed; empty: it is not
  };
  struct Quarantine {
    Moment until;
    Duration next{0};
    std::string reason;
  };
  using Pair = std::pair<ServerKey, ServerKey>;  // the smaller one first

  std::vector<ServerKey> remove_silent(Moment now);
  // Of servers that cannot reach each other.
  void note_apart(Moment now);
  std::set<Pair> long_apart(Moment now) const;
  bool can_do_without(const ServerEntry& entry, Moment now) const;
  void choose_removal(Moment now);
  bool is_quarantined(const std::string& id, Moment now) const;

  void join(const ServerKey& key, Moment now);
  void begin();
  bool is_silent(const Server& server, Moment now) const;
  bool has_successor(const ServerKey& key, Moment now) const;
  // The next map. If nobody in it is ready, all are made so.
  void add(ServerMap map);
  bool all_entered() const;
  void make_ready(const ServerKey& key);
  ServerMap next_map() const;
  ServerEntry entry_of(const ServerKey& key, bool ready) const;
  static void remove(ServerMap& map, const ServerKey& key);

  const RegistryOptions options_;
  Moment looked_;  // when expire() was called last
  MapHistory maps_;
  std::vector<std::string> events_;
  std::map<ServerKey, Server> servers_;            // all that ever were
  std::map<Pair, Moment> apart_;                   // too long, and since when that is known here
  std::map<std::string, Quarantine> quarantines_;  // by id
};

}  // namespace muster::ps
