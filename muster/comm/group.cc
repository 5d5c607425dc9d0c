#include "muster/comm/group.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace muster::comm {
namespace {

// What Gloo and condition variables can wait without overflow, and nobody will notice.
constexpr Duration kLongest = std::chrono::hours(24);

ErrorKind error_kind(FailureKind kind) {
  const bool ours = kind == FailureKind::kDisagreement || kind == FailureKind::kInternal;
  return ours ? ErrorKind::kInternal : ErrorKind::kIo;
}

}  // namespace

std::string_view failure_kind_name(FailureKind kind) {
  switch (kind) {
    case FailureKind::kAborted:
      return "aborted";
    case FailureKind::kDeadline:
      return "deadline";
    case FailureKind::kPeerLost:
      return "peer_lost";
    case FailureKind::kDisagreement:
      return "disagreement";
    case FailureKind::kInternal:
      return "internal";
  }
  return "unknown";
}

Part part_of(size_t count, int rank, int size) {
  const size_t n = static_cast<size_t>(size);
  const size_t r = static_cast<size_t>(rank);
  const size_t larger = count % n;
  return {.begin = r * (count / n) + std::min(r, larger), .size = count / n + (r < larger ? 1 : 0)};
}

std::string describe(const Operation& op) {
  const auto elements = [&](std::string_view type) { return fmt::format("{} {}", op.count, type); };
  const std::string where =
      op.tag == 0 ? fmt::format("#{}", op.number) : fmt::format("#{} of tag {}", op.number, op.tag);
  switch (op.kind) {
    case OpKind::kAllreduce:
    case OpKind::kReduceScatter: {
      const auto type = element_name(op.reduction);
      return fmt::format("{} {} of {}",
                         op.kind == OpKind::kAllreduce ? "allreduce" : "reduce_scatter", where,
                         elements(type));
    }
    case OpKind::kAllgather:
      return fmt::format("allgather {} of {} bytes", where, op.bytes());
    case OpKind::kBroadcast:
      return fmt::format("broadcast {} of {} bytes from rank {}", where, op.bytes(), op.peer);
    case OpKind::kBarrier:
      return fmt::format("barrier {}", where);
    case OpKind::kSend:
      return fmt::format("send of {} bytes to rank {} (tag {})", op.bytes(), op.peer, op.tag);
    case OpKind::kRecv:
      return fmt::format("recv of {} bytes from rank {} (tag {})", op.bytes(), op.peer, op.tag);
  }
  return "unknown operation";
}

bool same_call(const Operation& a, const Operation& b) {
  return a.kind == b.kind && a.reduction == b.reduction && a.peer == b.peer &&
         a.number == b.number && a.count == b.count && a.element == b.element &&
         a.packed == b.packed;
}

Group::Group(int rank, std::vector<std::string> names) : rank_(rank), names_(std::move(names)) {
  MUSTER_CHECK(rank >= 0 && rank < size(), "a rank must be below the number of names");
}

std::string Group::describe(int rank) const {
  return fmt::format("rank {} ({})", rank, name(rank));
}

// Holds a tag for one collective. Two at once would take each other's messages: a bug of the
// caller that no peer could explain.
class Group::Claim {
 public:
  explicit Claim(Tag& tag) : tag_(tag) {
    MUSTER_CHECK(!tag_.busy.exchange(true, std::memory_order_acquire),
                 "two collectives at the same time on one tag of a group");
  }
  ~Claim() { tag_.busy.store(false, std::memory_order_release); }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

 private:
  Tag& tag_;
};

template <typename Run>
Status Group::collective(Operation op, const OpOptions& options, Run run) {
  MUSTER_CHECK(options.tag < kCollectiveTags, "a collective's tag must be below kCollectiveTags");
  Tag& tag = tags_[options.tag];
  const Claim claim(tag);
  op.tag = options.tag;
  op.number = tag.number++;
  if (failed()) return error_of(op);
  if (size() == 1) return {};
  op.deadline = std::chrono::steady_clock::now() + std::min(options.timeout, kLongest);
  if (!run(op)) return error_of(op);
  return {};
}

Status Group::reduce(OpKind kind, Reduction reduction, void* data, size_t count,
                     const OpOptions& options) {
  const Operation op{
      .kind = kind,
      .reduction = reduction,
      .count = count,
      .element = static_cast<uint32_t>(element_size(reduction)),
      .packed = options.pack && reduction == Reduction::kSumInt32 && kind == OpKind::kAllreduce,
      .deadline = {}};
  return collective(op, options, [&](const Operation& o) {
    std::byte* bytes = static_cast<std::byte*>(data);
    return kind == OpKind::kAllreduce ? run_allreduce(o, bytes) : run_reduce_scatter(o, bytes);
  });
}

Status Group::allreduce_sum(std::span<int32_t> data, const OpOptions& options) {
  return reduce(OpKind::kAllreduce, Reduction::kSumInt32, data.data(), data.size(), options);
}
Status Group::allreduce_sum(std::span<float> data, const OpOptions& options) {
  return reduce(OpKind::kAllreduce, Reduction::kSumFloat, data.data(), data.size(), options);
}
Status Group::allreduce_max(std::span<uint8_t> data, const OpOptions& options) {
  return reduce(OpKind::kAllreduce, Reduction::kMaxUint8, data.data(), data.size(), options);
}
Status Group::reduce_scatter_sum(std::span<int32_t> data, const OpOptions& options) {
  return reduce(OpKind::kReduceScatter, Reduction::kSumInt32, data.data(), data.size(), options);
}
Status Group::reduce_scatter_sum(std::span<float> data, const OpOptions& options) {
  return reduce(OpKind::kReduceScatter, Reduction::kSumFloat, data.data(), data.size(), options);
}

Status Group::allgather_bytes(void* data, size_t element, size_t count, const OpOptions& options) {
  const Operation op{.kind = OpKind::kAllgather,
                     .count = count,
                     .element = static_cast<uint32_t>(element),
                     .deadline = {}};
  return collective(op, options, [&](const Operation& o) {
    return run_allgather(o, static_cast<std::byte*>(data));
  });
}

Status Group::broadcast_bytes(void* data, size_t bytes, int root, const OpOptions& options) {
  MUSTER_CHECK(root >= 0 && root < size(), "the root of a broadcast must be a member");
  const Operation op{.kind = OpKind::kBroadcast, .peer = root, .count = bytes, .deadline = {}};
  return collective(op, options, [&](const Operation& o) {
    return run_broadcast(o, static_cast<std::byte*>(data));
  });
}

Status Group::barrier(const OpOptions& options) {
  return collective(Operation{.kind = OpKind::kBarrier, .deadline = {}}, options,
                    [&](const Operation& o) { return run_barrier(o); });
}

Status Group::transfer(Operation op, const OpOptions& options, std::byte* data) {
  MUSTER_CHECK(op.peer >= 0 && op.peer < size() && op.peer != rank_,
               "send and recv need another member");
  MUSTER_CHECK(can_send(rank_, op.peer), "send and recv need a connected member");
  op.tag = options.tag;
  if (failed()) return error_of(op);
  op.deadline = std::chrono::steady_clock::now() + std::min(options.timeout, kLongest);
  const bool done = op.kind == OpKind::kSend ? run_send(op, data) : run_recv(op, data);
  if (!done) return error_of(op);
  return {};
}

Status Group::send_bytes(const void* data, size_t bytes, int to, const OpOptions& options) {
  const Operation op{.kind = OpKind::kSend, .peer = to, .count = bytes, .deadline = {}};
  // run_send takes it as const again.
  return transfer(op, options, static_cast<std::byte*>(const_cast<void*>(data)));
}

Status Group::recv_bytes(void* data, size_t bytes, int from, const OpOptions& options) {
  const Operation op{.kind = OpKind::kRecv, .peer = from, .count = bytes, .deadline = {}};
  return transfer(op, options, static_cast<std::byte*>(data));
}

Error Group::error_of(const Operation& op) const {
  const auto what = failure();
  MUSTER_CHECK(what.has_value(), "an operation failed without saying why");
  return Error(error_kind(what->kind), "{} on {} failed: {}", comm::describe(op), describe(rank_),
               what->message);
}

void Group::abort(const std::string& reason) {
  fail({.kind = FailureKind::kAborted,
        .origin = rank_,
        .message = fmt::format("{} aborted the group: {}", describe(rank_), reason)});
}

std::optional<GroupFailure> Group::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool Group::shut_once(std::optional<GroupFailure> failure, bool wait) {
  std::unique_lock lock(mutex_);
  if (shutting_) {
    if (wait) changed_.wait(lock, [&] { return shut_; });
    return false;
  }
  shutting_ = true;
  if (failure) {
    failure_ = failure;
    failed_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  lock.unlock();
  shut(failure ? &*failure : nullptr);
  lock.lock();
  shut_ = true;
  changed_.notify_all();
  lock.unlock();
  if (failure) {
    const std::lock_guard running(then_mutex_);
    if (then_) std::exchange(then_, nullptr)();
  }
  return false;
}

void Group::when_failed(std::function<void()> then) {
  const std::lock_guard running(then_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (!then || !shut_ || !failure_) {
      then_ = std::move(then);
      return;
    }
  }
  then();
}

void Group::fail_unless_failing(GroupFailure failure) { shut_once(std::move(failure), false); }

bool Group::fail(GroupFailure failure) { return shut_once(std::move(failure)); }

void Group::retire() { shut_once(std::nullopt); }

void Group::record(const GroupFailure& failure) {
  const std::lock_guard lock(mutex_);
  if (shutting_) return;
  shutting_ = shut_ = true;
  failure_ = failure;
  failed_.store(true, std::memory_order_release);
  changed_.notify_all();
}

bool Group::wait_failed(Duration at_most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, at_most, [&] { return failure_.has_value(); });
}

}  // namespace muster::comm
