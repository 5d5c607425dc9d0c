// A group: the live connections between a fixed set of workers, and what they can do together.
//
// What it is. A group has `size` members with ranks 0..size-1 and a name each (worker and host, as
// a person knows them). It is made once, from a list of peers, and never repaired: it works, or it
// fails fast and for good, and the roster makes another. A group inside a group is just another
// group, made from a shorter list of peers and a rendezvous of its own. NCCL and MPI will be
// further classes behind this header.
//
//   local_group.h        members are threads of one process; a group of one costs nothing
//   gloo_group.h         members are processes, over TCP by Gloo and through shared memory
//   two_level_group.h    members are at several sites; made of groups like these
//
// Failure. The first failure of any operation, a lost peer or abort() is the failure of the whole
// group, on every member: operations under way return an error within tens of milliseconds, later
// ones at once. The error is a sentence that names the peer and what was being done; failure()
// says the same to programs. After an operation has returned, with or without an error, the group
// no longer touches the memory it was given.
//
// Order. Members must call collectives (everything but send and recv) in the same order with the
// same sizes. Each call carries its number, kind and size to the peers; a member that is elsewhere
// fails the group with a sentence (kDisagreement) instead of adding wrong numbers.
//
// Threads. abort(), failure() and the simple questions: from any thread at any time. Collectives:
// one at a time per tag (OpOptions::tag; two at once are a bug and end the process); on different
// tags they may run at the same time from different threads. send and recv: from any number of
// threads, at most one send for each (peer, tag) and one recv for each (peer, tag) at a time; their
// tags have nothing to do with those of collectives. Destroy a group only when no call is under
// way; peers that hang do not hold that up.
//
// Memory. Nothing has to be registered, and collectives allocate nothing here once a tag has been
// used (Gloo allocates a little for each message).
//
// Bits. Integer sums and maxima do not depend on anything. A float sum is the same on all members,
// and the same in every run with the same size, backend, length and hosts; no more is promised.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/comm/reduce.h"

namespace muster::comm {

inline constexpr int kNobody = -1;
// Tags of collectives are 0 .. kCollectiveTags - 1: each has buffers and a count of its own.
inline constexpr uint32_t kCollectiveTags = 16;

struct OpOptions {
  // From the call on. An operation that takes longer has failed, and the group with it.
  Duration timeout = std::chrono::seconds(30);
  uint32_t tag = 0;
  // Of allreduce_sum of integers: most of them are small, so pack them where they go by TCP
  // (exact/packed_ints.h). The sums are the same. Not if more than kAllPairs (topology.h) members
  // talk by TCP, of which each host has one if there is shared memory; and not what is as small as
  // a message's header.
  bool pack = false;
};

enum class FailureKind : uint8_t {
  kAborted,       // somebody called abort()
  kDeadline,      // somebody did not come in time: hung, stopped, cut off, or just slow
  kPeerLost,      // a peer's process ended or left, or its machine could not be reached
  kDisagreement,  // members called different operations
  kInternal,      // the library below failed in a way that blames no peer
};
std::string_view failure_kind_name(FailureKind kind);

// How a group failed, or why it could not be formed.
struct GroupFailure {
  FailureKind kind = FailureKind::kInternal;
  // The member that the failure began with, as far as this member knows: the one that died, hung,
  // did not enter the operation, or called abort(). It need not be one that this member was
  // talking to, and it may be this member. For messages to people. kNobody if unknown.
  int origin = kNobody;
  // The failure detector's verdict: a peer that this member itself could not connect to, or that
  // was silent when this member asked it at the deadline, so that its process must be stopped, hung
  // or cut off. kNobody in all other cases: a peer that closed, left, aborted, or died (its
  // connection closed), one that disagreed, one that is alive but late, one that another member
  // reported. Never this member.
  int suspect = kNobody;
  std::string message;  // a sentence, with names
};

// The piece of `count` elements that belongs to `rank`: the first count % size pieces have one
// more than the others. reduce_scatter and allgather cut like this.
struct Part {
  size_t begin = 0;
  size_t size = 0;
};
Part part_of(size_t count, int rank, int size);

// For backends: what an operation is, in the terms that members compare.
enum class OpKind : uint8_t {
  kAllreduce,
  kReduceScatter,
  kAllgather,
  kBroadcast,
  kBarrier,
  kSend,
  kRecv
};
struct Operation {
  OpKind kind = OpKind::kBarrier;
  Reduction reduction = Reduction::kSumInt32;  // of reductions
  uint32_t tag = 0;
  int peer = 0;          // root, or the other side of send and recv
  uint64_t number = 0;   // of collectives, counted for each tag
  uint64_t count = 0;    // elements
  uint32_t element = 1;  // bytes of one
  bool packed = false;   // OpOptions::pack
  Moment deadline;

  size_t bytes() const { return static_cast<size_t>(count) * element; }
};
// "allreduce #17 of 4096 int32"
std::string describe(const Operation& op);
// Whether two members that made these calls of one tag made the same one.
bool same_call(const Operation& a, const Operation& b);

class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(names_.size()); }
  const std::string& name(int rank) const { return names_.at(static_cast<size_t>(rank)); }
  // How members talk, for logs: "one process", "shared memory", "tcp", "shared memory and tcp".
  virtual std::string_view transport() const = 0;
  // Whether members on one host share memory, so that an allreduce crosses its link once for all of
  // them, and other collectives once for each. The same on all members.
  virtual bool shares_memory() const { return false; }
  // "rank 2 (worker-c@host3)"
  std::string describe(int rank) const;

  // In place: afterwards `data` holds the sum or the maximum over all members, on all members.
  Status allreduce_sum(std::span<int32_t> data, const OpOptions& options = {});
  Status allreduce_sum(std::span<float> data, const OpOptions& options = {});
  Status allreduce_max(std::span<uint8_t> data, const OpOptions& options = {});

  // In place: afterwards this member's part of `data` holds the sum; the rest is undefined.
  Status reduce_scatter_sum(std::span<int32_t> data, const OpOptions& options = {});
  Status reduce_scatter_sum(std::span<float> data, const OpOptions& options = {});

  // In place: each member brings its own part of `data`; afterwards all have all parts.
  template <typename T>
  Status allgather(std::span<T> data, const OpOptions& options = {}) {
    static_assert(std::is_trivially_copyable_v<T>);
    return allgather_bytes(data.data(), sizeof(T), data.size(), options);
  }

  // Afterwards `data` is everywhere what it was on `root`.
  template <typename T>
  Status broadcast(std::span<T> data, int root, const OpOptions& options = {}) {
    static_assert(std::is_trivially_copyable_v<T>);
    return broadcast_bytes(data.data(), data.size_bytes(), root, options);
  }

  // Nobody leaves before everybody has come.
  Status barrier(const OpOptions& options = {});

  // Whether these two different members can send to each other. In large groups not all pairs can
  // (topology.h); the answer is the same on all members.
  virtual bool can_send(int /*from*/, int /*to*/) const { return true; }
  // To and from one peer (not oneself) for which can_send() is true; another one ends the process.
  // Both sides must give the same size and tag. send may return before the peer has called recv, or
  // wait for it.
  template <typename T>
  Status send(std::span<T> data, int to, const OpOptions& options = {}) {
    static_assert(std::is_trivially_copyable_v<T>);
    return send_bytes(data.data(), data.size_bytes(), to, options);
  }
  template <typename T>
  Status recv(std::span<T> data, int from, const OpOptions& options = {}) {
    static_assert(std::is_trivially_copyable_v<T>);
    return recv_bytes(data.data(), data.size_bytes(), from, options);
  }

  // Ends the group, here and on all members that can be reached, which learn `reason` and who said
  // it. Returns when no operation of this member can block any more. Calling it again does nothing.
  void abort(const std::string& reason);

  // The first failure, once there is one.
  std::optional<GroupFailure> failure() const;
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  // For a group that is made of others. end(): like abort(), because of a failure that was found
  // elsewhere; its origin and suspect are ranks of this group. when_failed(): `then` is called
  // once, from any thread, when this member has learnt of a failure and nothing waits any more; at
  // once if there is one already. Null: no longer, and it is not running when this returns. Not for
  // groups of threads.
  void end(GroupFailure failure) { fail(std::move(failure)); }
  void when_failed(std::function<void()> then);

 protected:
  Group(int rank, std::vector<std::string> names);

  // The work. Not called in a group of one. Each blocks until done, failed, or the deadline;
  // returns false after fail().
  virtual bool run_allreduce(const Operation& op, std::byte* data) = 0;
  virtual bool run_reduce_scatter(const Operation& op, std::byte* data) = 0;
  virtual bool run_allgather(const Operation& op, std::byte* data) = 0;
  virtual bool run_broadcast(const Operation& op, std::byte* data) = 0;
  virtual bool run_barrier(const Operation& op) = 0;
  virtual bool run_send(const Operation& op, const std::byte* data) = 0;
  virtual bool run_recv(const Operation& op, std::byte* data) = 0;
  // Called once, by the first fail() or by retire(), on its thread: wakes every operation of this
  // member for good and tells the peers. Null: this member leaves in good order.
  virtual void shut(const GroupFailure* failure) = 0;

  // Records the first failure and shuts the group; returns (always false) when that is done,
  // whoever did it. So afterwards nothing writes to the memory of an operation.
  bool fail(GroupFailure failure);
  // For the destructor of a backend: leaves the group in good order, if it has not failed.
  void retire();
  // Like fail(), where the backend has already done what shut() would do.
  void record(const GroupFailure& failure);
  // Waits for another thread to record a failure. True if there is one.
  bool wait_failed(Duration at_most);
  // Like fail(), but does not wait if somebody else is about to do it.
  void fail_unless_failing(GroupFailure failure);

 private:
  class Claim;
  template <typename Run>
  Status collective(Operation op, const OpOptions& options, Run run);
  Status transfer(Operation op, const OpOptions& options, std::byte* data);
  Status allgather_bytes(void* data, size_t element, size_t count, const OpOptions& options);
  Status broadcast_bytes(void* data, size_t bytes, int root, const OpOptions& options);
  Status send_bytes(const void* data, size_t bytes, int to, const OpOptions& options);
  Status recv_bytes(void* data, size_t bytes, int from, const OpOptions& options);
  Status reduce(OpKind kind, Reduction reduction, void* data, size_t count,
                const OpOptions& options);
  Error error_of(const Operation& op) const;
  bool shut_once(std::optional<GroupFailure> failure, bool wait = true);

  struct Tag {
    std::atomic<bool> busy{false};
    uint64_t number = 0;  // touched only by the holder of `busy`
  };

  const int rank_;
  const std::vector<std::string> names_;
  std::array<Tag, kCollectiveTags> tags_;

  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<GroupFailure> failure_;  // guarded by mutex_
  bool shutting_ = false;                // guarded by mutex_: shut() has been called
  bool shut_ = false;                    // guarded by mutex_: and has returned
  std::mutex then_mutex_;                // held while then_ runs
  std::function<void()> then_;           // guarded by then_mutex_; when_failed()
};

}  // namespace muster::comm
