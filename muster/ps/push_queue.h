// A client's pushes that are not answered yet, for all shards: numbers them, sends them to whoever
// is primary, and repeats them, in their order, whenever that has changed or a connection broke.
//
// Pure: no clock, no thread, no connection.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "muster/base/result.h"
#include "muster/ps/server_map.h"
#include "muster/ps/shard_copy.h"

namespace muster::ps {

class PushLinks {
 public:
  virtual ~PushLinks() = default;
  virtual void send(const ServerKey& to, ShardNumber shard, uint64_t epoch, const Push& push) = 0;
};

class PushQueue {
 public:
  // `client`: drawn anew by each process. `links` must outlive this.
  PushQueue(uint64_t client, ShardNumber shards, int copies, PushLinks& links);

  uint64_t epoch() const { return map_.epoch; }
  // Null: there is none.
  const ServerKey* primary_of(ShardNumber shard) const;
  size_t unanswered() const { return unanswered_; }
  // Whether that server is the primary of a shard with pushes that are not answered.
  bool awaits(const ServerKey& server) const;

  // The number of the push.
  uint64_t push(ShardNumber shard, Bytes bytes);
  // A newer map than the one it has. The registry sends each of them, so none is asked for.
  void enter(const ServerMap& map);
  // There is a new connection to this server. What was under way may be lost.
  void reconnected(const ServerKey& server);
  // An error: the push was malformed, or servers have forgotten what they had answered. Nothing is
  // sent any more then.
  Status answered(const PushAnswer& answer);
  // Some server has an older map than this client, or has lost a shard; call retry() after a
  // moment.
  bool wants_retry() const { return !late_.empty(); }
  void retry();

 private:
  struct Shard {
    std::optional<ServerKey> primary;
    uint64_t last = 0;  // the number of the newest push
    std::deque<Push> unanswered;
    uint64_t gap = 0;  // what was missing when it was last repeated for that reason; 0: nothing
  };
  void retry_later(ShardNumber shard);
  void send_all(ShardNumber shard, uint64_t from_number = 0);

  const uint64_t client_;
  const int copies_;
  PushLinks& links_;
  ServerMap map_;
  std::vector<Shard> shards_;
  std::vector<ShardNumber> late_;
  bool failed_ = false;
  size_t unanswered_ = 0;
};

}  // namespace muster::ps
