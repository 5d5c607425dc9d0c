// A client's questions to servers that are not answered yet, for all shards: asks whoever is
// primary, and again if that has changed, a connection broke, or the shard was not served. What
// push_queue.h is for pushes.
//
// A server answers each question once, if only that it does not serve the shard, until the
// connection breaks. So it is not asked again while its answer is under way: it would read a whole
// shard twice.
//
// Pure: no clock, no thread, no connection.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "muster/ps/server_map.h"

namespace muster::ps {

// `What` is asked.
template <typename What>
class Questions {
 public:
  class Links {
   public:
    virtual ~Links() = default;
    // Null: there is none.
    virtual const ServerKey* primary_of(ShardNumber shard) const = 0;
    // False: there is no connection.
    virtual bool ask(const ServerKey& to, uint64_t request, ShardNumber shard,
                     const What& what) = 0;
  };
  // `links` must outlive it.
  explicit Questions(Links& links) : links_(links) {}

  // `request`: never used twice.
  void ask(ShardNumber shard, What what) {
    const uint64_t request = ++last_;
    ask(request, all_.emplace(request, One{shard, std::move(what), {}}).first->second);
  }
  // There is another map, or a new connection.
  void repeat() {
    for (auto& [request, one] : all_) ask(request, one);
  }
  // The connection to this server broke. What was under way is lost.
  void disconnected(const ServerKey& server) {
    for (auto& [request, one] : all_) {
      if (one.asked == server) one.asked.reset();
    }
  }

  // What this answers; null: nothing that is still asked.
  What* find(uint64_t request, ShardNumber shard) {
    const auto found = all_.find(request);
    return found == all_.end() || found->second.shard != shard ? nullptr : &found->second.what;
  }
  void answered(uint64_t request) { all_.erase(request); }
  // That server does not serve the shard. Nothing if another one was asked since.
  void not_served(uint64_t request, const ServerKey& by) {
    const auto found = all_.find(request);
    if (found == all_.end() || found->second.asked != by) return;
    found->second.asked.reset();
    not_served_.push_back(request);
  }
  // Some were not served; call retry() after a moment.
  bool wants_retry() const { return !not_served_.empty(); }
  void retry() {
    for (const uint64_t request : std::exchange(not_served_, {})) {
      const auto found = all_.find(request);
      if (found != all_.end()) ask(request, found->second);
    }
  }
  // Whether that server is the primary of a shard of which something is asked.
  bool awaits(const ServerKey& server) const {
    return std::ranges::any_of(all_, [&](const auto& one) {
      const ServerKey* const primary = links_.primary_of(one.second.shard);
      return primary != nullptr && *primary == server;
    });
  }
  // Nothing is asked any more.
  void clear() {
    all_.clear();
    not_served_.clear();
  }

 private:
  struct One {
    ShardNumber shard = 0;
    What what;
    std::optional<ServerKey> asked;  // its answer is under way from there
  };
  void ask(uint64_t request, One& one) {
    const ServerKey* const primary = links_.primary_of(one.shard);
    if (primary == nullptr || one.asked == *primary) return;
    if (links_.ask(*primary, request, one.shard, one.what)) one.asked = *primary;
  }

  Links& links_;
  uint64_t last_ = 0;
  std::map<uint64_t, One> all_;
  std::vector<uint64_t> not_served_;
};

}  // namespace muster::ps
