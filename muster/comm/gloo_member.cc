#include "muster/comm/gloo_member.h"

#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace muster::comm {
namespace {

// Up to this much data travels with the first message. Larger groups get less, because each tag
// keeps buffers of this size for each peer.
size_t inline_bytes_for(int size) { return size <= 16 ? 16 << 10 : 2 << 10; }

// How long to wait for the watch to say why a connection broke. It knows within a millisecond,
// unless the machine is very busy; without it, the blame falls on the peer at the other end.
constexpr auto kVerdict = std::chrono::milliseconds(500);
constexpr auto kVerdictSlice = std::chrono::milliseconds(5);

// How long a living process may take to answer: more than it waits for a processor where dozens of
// workers share two.
constexpr auto kAnswer = std::chrono::seconds(1);

// "Where are you, while I wait for you in this operation?"
struct Question {
  uint32_t tag = 0;
  uint32_t kind = 0;  // an OpKind; kAnyKind: whatever you are doing
  int32_t asker = 0;  // of a transfer, the other side
  uint32_t unused = 0;
  uint64_t number = 0;  // of a collective
};
constexpr uint32_t kAnyKind = 255;
struct Answer {
  int32_t waits_for = kNobody;  // kNobody: it computes, or is outside the group
  uint32_t here = 0;            // it is in this very operation
};

template <typename T>
std::string to_bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
template <typename T>
std::optional<T> from_bytes(std::string_view bytes) {
  T value;
  if (bytes.size() != sizeof(value)) return std::nullopt;
  std::memcpy(&value, bytes.data(), bytes.size());
  return value;
}

}  // namespace

GlooMember::Link::Link(GlooWire& wire, size_t inline_bytes)
    : opening(wire),
      parts(wire),
      results(wire),
      out(sizeof(Call) + inline_bytes),
      in(sizeof(Call) + inline_bytes) {}

GlooMember::GlooMember(const GlooGroupOptions& options, std::unique_ptr<GlooWire> wire,
                       std::unique_ptr<PeerWatch> watch)
    : Group(options.rank, options.names),
      inline_bytes_(inline_bytes_for(size())),
      algorithm_(options.allreduce),
      wire_(std::move(wire)),
      wired_(options.names.size()),
      watch_(std::move(watch)) {}

GlooMember::~GlooMember() { retire(); }

Result<std::unique_ptr<GlooMember>> GlooMember::create(const GlooGroupOptions& options) {
  const int size = static_cast<int>(options.names.size());
  MUSTER_TRY(auto watch, PeerWatch::listen(options.device->address(), options.rank, size));
  try {
    auto wire = std::make_unique<GlooWire>(options.device, options.rank, size);
    return std::unique_ptr<GlooMember>(new GlooMember(options, std::move(wire), std::move(watch)));
  } catch (const std::exception& e) {
    return Error(ErrorKind::kMachine, "Gloo cannot make a context: {}", e.what());
  }
}

void GlooMember::shut(const GroupFailure* failure) {
  watch_->say(failure);
  watch_->give_up();
  if (plane_made_.load(std::memory_order_acquire)) {
    if (failure == nullptr) plane_->leave();
    plane_->close();
  }
  wire_->close();
}

std::string_view GlooMember::transport() const {
  switch (use_) {
    case Use::kTcp:
      return "tcp";
    case Use::kSharedMemory:
      return "shared memory";
    case Use::kHosts:
      return "shared memory and tcp";
  }
  return "unknown";
}

GlooMember::Channel& GlooMember::channel(uint32_t tag) {
  const std::lock_guard lock(channels_mutex_);
  auto& channel = channels_[tag];
  if (channel == nullptr) {
    channel = std::make_unique<Channel>();
    channel->links.resize(static_cast<size_t>(size()));
  }
  return *channel;
}

// Only the thread that holds the tag calls this.
GlooMember::Link& GlooMember::link(Channel& channel, int rank) {
  auto& made = channel.links[static_cast<size_t>(rank)];
  if (made == nullptr) made = std::make_unique<Link>(*wire_, inline_bytes_);
  return *made;
}

int GlooMember::waits_for_anything() const {
  {
    const std::lock_guard lock(transfers_mutex_);
    if (!transfers_.empty()) return transfers_.front().peer;
  }
  for (const Place& place : places_) {
    if (const int peer = place.waits_for.load(); peer != kNobody) return peer;
  }
  return forming_ ? unconnected() : kNobody;
}

std::string GlooMember::answer(std::string_view question) const {
  const auto asked = from_bytes<Question>(question);
  if (!asked) return to_bytes(Answer{});
  const auto kind = static_cast<OpKind>(asked->kind);
  if (kind == OpKind::kSend || kind == OpKind::kRecv) {
    const OpKind ours = kind == OpKind::kSend ? OpKind::kRecv : OpKind::kSend;
    const std::lock_guard lock(transfers_mutex_);
    for (const Transfer& t : transfers_) {
      if (t.kind == ours && t.peer == asked->asker && t.tag == asked->tag) {
        return to_bytes(Answer{.waits_for = t.peer, .here = 1});
      }
    }
  } else if (asked->tag < kCollectiveTags && asked->kind != kAnyKind) {
    const Place& place = places_[asked->tag];
    const int peer = place.waits_for.load();
    if (peer != kNobody && place.number.load() == asked->number) {
      return to_bytes(Answer{.waits_for = peer, .here = 1});
    }
  }
  return to_bytes(Answer{.waits_for = waits_for_anything()});
}

// We wait for a peer, which may itself wait for another, in the same operation or in another one.
// The chain is followed until a member that is silent, that waits for nobody, or that has been met
// before.
GlooMember::Verdict GlooMember::find_origin(int peer, const Operation& op) {
  Question question{
      .tag = op.tag, .kind = static_cast<uint32_t>(op.kind), .asker = rank(), .number = op.number};
  std::vector<bool> seen(static_cast<size_t>(size()));
  seen[static_cast<size_t>(rank())] = true;
  bool transfer = op.kind == OpKind::kSend || op.kind == OpKind::kRecv;
  for (int at = peer;;) {
    seen[static_cast<size_t>(at)] = true;
    const auto there =
        from_bytes<Answer>(watch_->ask(at, to_bytes(question), kAnswer).value_or(""));
    if (!there) {
      return {.origin = at, .silent = true, .how = "is silent: it is stopped, hung or cut off"};
    }
    const int next = there->waits_for;
    if (next < 0 || next >= size()) return {.origin = at, .how = "lives, but did not come"};
    if (seen[static_cast<size_t>(next)]) {
      return {.origin = at,
              .waits_for_us = next == rank(),
              .how = "lives and takes part, but too slowly"};
    }
    // Only the peer itself can be in our transfer.
    if (std::exchange(transfer, false)) question.kind = kAnyKind;
    at = next;
  }
}

bool GlooMember::late(int peer, const Operation& op) {
  const Verdict verdict = find_origin(peer, op);
  // Silent, because it has sent its final message already? Then that counts: if this process was
  // stopped for a while, it names this process, and rightly.
  if (watch_->has_left(verdict.origin)) return left(verdict.origin, op);
  const bool over = watch_->is_over(verdict.origin);
  if (over) wait_failed(kVerdict);
  return fail({.kind = FailureKind::kDeadline,
               .origin = verdict.origin,
               .suspect = verdict.silent && !over ? verdict.origin : kNobody,
               .message = fmt::format("{} {} ({} waited for it in {} until the deadline)",
                                      describe(verdict.origin), verdict.how, describe(rank()),
                                      comm::describe(op))});
}

bool GlooMember::left(int peer, const Operation& op) {
  return fail({.kind = FailureKind::kPeerLost,
               .origin = peer,
               .message = fmt::format("{} left the group while {} waited for it in {}",
                                      describe(peer), describe(rank()), comm::describe(op))});
}

bool GlooMember::broken(int peer, const Operation& op, const std::string& error) {
  // The peer may have closed because of another one, or this member itself may be closing. Whoever
  // knows will have said so in a moment.
  const Moment until = std::chrono::steady_clock::now() + kVerdict;
  while (!wait_failed(kVerdictSlice) && !watch_->has_left(peer) &&
         std::chrono::steady_clock::now() < until) {
  }
  if (watch_->has_left(peer)) return left(peer, op);
  return fail({.kind = FailureKind::kPeerLost,
               .origin = peer,
               .message = fmt::format("the connection to {} broke: {}", describe(peer), error)});
}

bool GlooMember::disagree(int peer, const Operation& op, const Call& theirs) {
  const bool readable = theirs.magic == Call::kMagic;
  return fail({.kind = FailureKind::kDisagreement,
               .origin = peer,
               .message = fmt::format(
                   "{} called {} where {} called {}", describe(peer),
                   readable ? comm::describe(operation_of(theirs, op.tag)) : "something unreadable",
                   describe(rank()), comm::describe(op))});
}

}  // namespace muster::comm
