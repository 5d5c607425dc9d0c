// What a server does with the shards that it holds: the rules, without clock, threads or
// connections.
//
// The lease. The coordinator removes a server that it has not heard from for a while, and never
// before the lease is over that it gave with its last answer. A server counts that lease from the
// moment at which it asked, and without a valid one it lets nobody read. So when another server
// becomes primary, nobody gets older rows from the one before, even if that was only suspended and
// does not know yet. For that its clock must go on while the machine sleeps (CLOCK_BOOTTIME), and
// the time must be taken after the request has come. Pushes need no lease: see shard_copy.h.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "muster/base/clock.h"
#include "muster/ps/server_map.h"
#include "muster/ps/shard_copy.h"

namespace muster::ps {

class ServerCore {
 public:
  using MakeData = std::function<std::unique_ptr<ShardData>(ShardNumber)>;

  // `links` must outlive it.
  ServerCore(ServerKey self, ShardNumber shards, int copies, const MakeData& make_data,
             ShardLinks& links);

  const ServerKey& self() const { return self_; }
  uint64_t epoch() const { return epoch_; }
  // Those after epoch(), oldest first (MapHistory::since).
  void enter(std::span<const ServerMap> maps);

  // The coordinator has answered what was asked at `asked`.
  void extend_lease(Moment asked, Duration lease) {
    lease_until_ = std::max(lease_until_, asked + lease);
  }

  void push(ShardNumber shard, uint64_t epoch, Push push);
  // What may be read now by a client that has seen `epoch`. Null: nothing; it should look for a
  // newer map.
  ShardData* read(ShardNumber shard, uint64_t epoch, Moment now);

  void receive(const ServerKey& from, const ShardMessage& message);
  void reconnected(const ServerKey& peer);
  // Sends up to `most` copies that others wait for, and first those that answers wait for; how
  // many. `takes_more`: whether that server may get one now; empty: all may.
  int send_copies(int most, const std::function<bool(const ServerKey& to)>& takes_more = {});

  // Each shard that it holds, or will hold when it is ready, is here and takes part in pushes.
  bool has_all() const;
  // Each shard that it holds has every push that was answered.
  bool is_complete() const;
  std::vector<ShardNumber> lost() const;
  // Why the server must end, if so: for example a row that does not fit into its memory.
  const Error* failure() const;
  const ShardCopy& at(ShardNumber shard) const { return *held_[shard].copy; }

 private:
  struct Held {
    std::unique_ptr<ShardData> data;
    std::unique_ptr<ShardCopy> copy;
  };
  ShardCopy& copy(ShardNumber shard) { return *held_[shard].copy; }
  int send_copies(bool awaited, int most,
                  const std::function<bool(const ServerKey& to)>& takes_more);

  const ServerKey self_;
  const int copies_;
  ShardLinks& links_;
  uint64_t epoch_ = 0;
  Moment lease_until_;
  std::vector<Held> held_;
  ShardNumber next_copy_ = 0;  // where send_copies() goes on
};

}  // namespace muster::ps
