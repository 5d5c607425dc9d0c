// One server's copy of one shard, and what it does so that all copies stay the same.
//
// The primary (server_map.h) gives each push of a client its place in the order and forwards it.
// Followers apply what they get in that order and confirm it. When all that must confirm have, the
// primary applies it too, and answers the client. So what is answered, and what can be read, is
// with everybody who could be primary next. A primary that was replaced without knowing it gets no
// confirmation any more, and so answers no push.
//
// A new primary has what it applied as a follower, which may not be with all others yet. It answers
// nothing and lets nobody read until those who must confirm have that too (`settled`).
//
// Exactly once. A client numbers its pushes to a shard 1, 2, 3, ... and repeats those that were not
// answered, in their order, to whoever is primary. The last number of each client is part of the
// shard: one that was there is answered again, and not applied again.
//
// Complete. A copy is complete if it has every push that was ever answered. Only a complete copy
// serves. Who must confirm:
// - a follower to which this primary has sent its copy, or which it knows to have the same;
// - in a new epoch, with another primary, also each that held the shard in the epoch before, until
//   it says that it is not complete;
// - the primary of the epoch before, also if it holds the shard no more, until it has said that it
//   knows (`Release`): as long as it does not, it may let clients read.
// Hence a copy that was complete in one epoch is so in the next if its server holds the shard in
// both; if not, it is dropped. A primary whose copy is not complete has `lost` the shard: all who
// were complete are gone.
//
// A follower that is new has no part in answers until it is sent a copy. The server says when
// (send_copy), so that pushes to a shard wait only while its own copy is under way. It also says
// when a follower gets one for which answers wait: shards that move do so together, and a server
// that copied all of them at once would send no heartbeat meanwhile.
//
// Messages. Everything between two servers is told with the epoch. What is from an earlier one is
// dropped, what is from a later one waits until this server has entered that. A follower counts how
// often it has asked, and takes only what answers its last question. Between two servers messages
// keep their order, and nothing of a connection that broke comes after reconnected().
//
// Pure: no clock, no thread, no connection. The simulation (simulation.h) uses this same code.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/ps/server_map.h"
#include "muster/ps/shared_bytes.h"

namespace muster::ps {

struct Push {
  Push() = default;
  Push(uint64_t from, uint64_t nth, const Bytes& what)
      : Push(from, nth, what, hash64(what->data(), what->size())) {}
  Push(uint64_t from, uint64_t nth, Bytes what, uint64_t hash_of_what)
      : client(from), number(nth), bytes(std::move(what)), hash(hash_of_what) {}

  uint64_t client = 0;  // its incarnation: a worker that was started again is another client
  uint64_t number = 0;  // of this client's pushes to this shard, from 1
  Bytes bytes;          // for ShardData::apply
  uint64_t hash = 0;    // of the bytes: they are read once for all checksums and chains
};

// What a shard holds. Equal pushes in equal order give equal contents.
class ShardData {
 public:
  virtual ~ShardData() = default;
  // Whether apply() could read it. What comes from clients is not trusted.
  virtual Status check(std::string_view push) const = 0;
  // An error: the machine cannot hold it. The copy is of no use any more.
  virtual Status apply(std::string_view push) = 0;
  virtual void save(std::string& to) = 0;
  virtual Status load(std::string_view from) = 0;  // in place of what it holds
  virtual void clear() = 0;
};

// ---- What servers tell each other of a shard.

// `question`: which Ask of the follower this belongs to.

// From the primary: apply this.
struct Forward {
  uint64_t question = 0;
  uint64_t place = 0;  // in the order of all pushes, from 1
  Push push;
};
// To the primary: everything up to here is applied.
struct Confirm {
  uint64_t question = 0;
  uint64_t place = 0;
};
// To the primary: this is what I have; make it the same as yours.
struct Ask {
  uint64_t question = 0;
  uint64_t place = 0;
  uint64_t chain = 0;  // a hash of all pushes up to there
  bool complete = false;
};
// From the primary: this is what I have. Forwards that follow go on from there.
struct Copy {
  uint64_t question = 0;
  Bytes state;  // null: it is what you have
};
// From the primary of an earlier epoch to that of this one: I serve this shard no more.
struct Release {};
struct ShardMessage {
  ShardNumber shard = 0;
  uint64_t epoch = 0;
  std::variant<Forward, Confirm, Ask, Copy, Release> what;
};

// ---- What a client is told.

enum class PushVerdict : uint8_t {
  kApplied,     // now or before
  kOtherEpoch,  // look at the newest map and repeat; `epoch` is the server's
  kGap,         // a push before this one is missing; repeat from `number` on
  kLost,        // the shard is lost: wait for the job to go back to a snapshot
  kMalformed,   // ShardData::check says why
};
struct PushAnswer {
  ShardNumber shard = 0;
  uint64_t client = 0;
  uint64_t number = 0;
  PushVerdict verdict = PushVerdict::kApplied;
  uint64_t epoch = 0;
  std::string reason;
};

// Where a copy's messages go. Calls come from within the calls below.
class ShardLinks {
 public:
  virtual ~ShardLinks() = default;
  virtual void send(const ServerKey& to, ShardMessage message) = 0;
  virtual void answer(PushAnswer answer) = 0;
};

class ShardCopy {
 public:
  // All of these must outlive it.
  ShardCopy(ShardNumber shard, ServerKey self, ShardData& data, ShardLinks& links);

  // One epoch after the other, from any on. In epoch 1 all who hold the shard have it, empty.
  void enter(const ServerMap& map, int copies);

  // From a client that has seen this epoch.
  void push(uint64_t epoch, Push push);
  // Whether what `data` holds now may be read by a client that has seen this epoch.
  bool serves(uint64_t epoch) const {
    return role_ == ShardRole::kPrimary && complete_ && epoch == epoch_ && settled_;
  }
  bool lost() const { return role_ == ShardRole::kPrimary && !complete_ && !failure_; }

  void receive(const ServerKey& from, const ShardMessage& message);
  // There is a new connection to this server. What was under way may be lost.
  void reconnected(const ServerKey& peer);
  // Followers that wait for a copy; those for which answers wait; and sending it to one of them.
  std::vector<ServerKey> wanting_copies() const;
  std::vector<ServerKey> awaited_copies() const;
  void send_copy(const ServerKey& follower);

  // Of a primary: whether that follower has confirmed everything that is applied here.
  bool is_with(const ServerKey& server) const;

  uint64_t epoch() const { return epoch_; }
  ShardRole role() const { return role_; }
  // It has what was answered, and takes part in what is being pushed.
  bool in_step() const { return complete_ && (role_ == ShardRole::kPrimary || synced_); }
  uint64_t place() const { return place_; }  // pushes applied
  uint64_t chain() const { return chain_; }
  // It has every push that was answered.
  bool complete() const { return complete_; }
  // Why this copy cannot go on, if so. Its server must end: others wait for it.
  const std::optional<Error>& failure() const { return failure_; }

 private:
  // Of a follower, as its primary knows it.
  enum class State : uint8_t {
    kNew,      // answers do not wait for it, and it has not asked yet
    kWants,    // the same, and it has asked for a copy
    kMustAsk,  // answers wait for it, and it has to ask
    kAwaited,  // the same, and it has asked for a copy
    kInStep,   // answers wait for its confirmation
    kLeaving,  // it was primary and holds the shard no more; answers wait for its Release
  };
  struct Follower {
    ServerKey key;
    State state = State::kNew;
    uint64_t question = 0;   // its last one
    uint64_t confirmed = 0;  // in step: up to this place
  };
  struct Pending {
    Push push;
    uint64_t chain = 0;  // with this push
  };

  void take(const ServerKey& from, const Forward& forward);
  void take(const ServerKey& from, const Confirm& confirm);
  void take(const ServerKey& from, const Ask& ask);
  void take(const ServerKey& from, const Copy& copy);
  void take(const ServerKey& from, const Release& release);

  // Of a primary.
  static bool wants(const Follower& follower) {
    return follower.state == State::kWants || follower.state == State::kAwaited;
  }
  // Answers wait for it, and it holds the shard.
  static bool is_waited_for(const Follower& follower) {
    return follower.state == State::kMustAsk || follower.state == State::kAwaited ||
           follower.state == State::kInStep;
  }
  Follower* find(const ServerKey& key);
  State state_in_new_epoch(const ServerKey& follower, bool was_primary);
  void keep_followers(const ServerMap& map, const Holders& holders, bool was_primary);
  void begin_follower(Follower& follower, uint64_t from_place, Bytes state);
  void forward_pending(const Follower& follower, uint64_t from_place);
  // The chain after the push at this place, if that is the last one applied or pending.
  std::optional<uint64_t> chain_at(uint64_t place) const;
  uint64_t last_number(uint64_t client) const;  // pending ones count
  bool all_confirmed(uint64_t place) const;
  void apply_confirmed();
  void reply(uint64_t client, uint64_t number, PushVerdict verdict, std::string reason = {});

  // Of a follower.
  bool follows(const ServerKey& primary, uint64_t question) const;
  void ask();
  void confirm();

  void drop();
  void release();
  void tell(const ServerKey& to, decltype(ShardMessage::what) what);
  void apply(const Push& push, uint64_t chain);
  void fail(Error error);
  std::string save();
  Status load(std::string_view state);

  const ShardNumber shard_;
  const ServerKey self_;
  ShardData& data_;
  ShardLinks& links_;

  uint64_t epoch_ = 0;
  Holders holders_;
  ShardRole role_ = ShardRole::kNone;
  bool complete_ = false;
  std::optional<Error> failure_;

  // Part of what is copied.
  uint64_t place_ = 0;
  uint64_t chain_ = 0;
  std::map<uint64_t, uint64_t> last_numbers_;  // by client: of the last push that was applied

  // Of a primary.
  std::vector<Follower> followers_;
  std::deque<Pending> pending_;  // at place_ + 1, ...
  uint64_t inherited_ = 0;       // its place when it became primary
  bool settled_ = false;         // all who had to confirm that have
  // Pushes that are applied and were repeated before it was settled: client and number.
  std::vector<std::pair<uint64_t, uint64_t>> repeated_;

  // Of a follower.
  uint64_t question_ = 0;  // how often it has asked, ever
  bool synced_ = false;    // the last question is answered

  // This server was primary in an earlier epoch, and holds the shard no more: it must tell whoever
  // is primary now.
  bool must_release_ = false;

  std::vector<std::pair<ServerKey, ShardMessage>> later_;  // of epochs that are not entered yet
};

}  // namespace muster::ps
