#include "muster/comm/gloo_member.h"

#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "muster/comm/local_group.h"

namespace muster::comm {
namespace {

// Up to this much data travels with the first message. Larger groups get less, because each tag
// keeps buffers of this size for each peer.
size_t inline_bytes_for(int size) { return size <= 16 ? 16 << 10 : 2 << 10; }

// How long to wait for the watch to say why a connection broke. It knows within a millisecond,
// unless the machine is very busy; without it, the blame falls on the peer at the other end.
constexpr auto kVerdict = std::chrono::milliseconds(500);
constexpr auto kVerdictSlice = std::chrono::milliseconds(5);

// How long a living process may take to answer. Ten times what a loaded machine needs.
constexpr auto kAnswer = std::chrono::milliseconds(200);

// A question is a tag; an answer is this.
struct Whereabouts {
  uint64_t number = 0;
  int32_t waits_for = kNobody;
  uint32_t unused = 0;
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

Result<std::unique_ptr<Group>> make_gloo_group(const GlooGroupOptions& options) {
  if (options.names.size() == 1) return solo_group(options.names[0]);
  MUSTER_CHECK(options.device != nullptr && options.rendezvous != nullptr,
               "a group needs a device and a rendezvous");
  MUSTER_TRY(auto member, GlooMember::create(options));
  MUSTER_RETURN_IF_ERROR(member->form(options));
  return std::unique_ptr<Group>(std::move(member));
}

GlooMember::Line::Line(GlooWire& wire, size_t inline_bytes)
    : opening(wire),
      parts(wire),
      results(wire),
      out(sizeof(Call) + inline_bytes),
      in(sizeof(Call) + inline_bytes) {}

GlooMember::GlooMember(const GlooGroupOptions& options, std::unique_ptr<GlooWire> wire,
                       std::unique_ptr<PeerWatch> watch, std::unique_ptr<SharedPlane> plane)
    : Group(options.rank, options.names),
      inline_bytes_(inline_bytes_for(size())),
      wire_(std::move(wire)),
      plane_(std::move(plane)),
      watch_(std::move(watch)) {}

GlooMember::~GlooMember() { retire(); }

Result<std::unique_ptr<GlooMember>> GlooMember::create(const GlooGroupOptions& options) {
  const int size = static_cast<int>(options.names.size());
  MUSTER_TRY(auto watch, PeerWatch::listen(options.device->address(), options.rank, size));
  auto plane = options.shared_memory ? SharedPlane::create(options.rank, size) : nullptr;
  try {
    auto wire = std::make_unique<GlooWire>(options.device, options.rank, size);
    return std::unique_ptr<GlooMember>(
        new GlooMember(options, std::move(wire), std::move(watch), std::move(plane)));
  } catch (const std::exception& e) {
    return Error(ErrorKind::kMachine,
                 "Gloo cannot listen for the {} peers of a group (too many open files? see "
                 "`ulimit -n`): {}",
                 size - 1, e.what());
  }
}

Error GlooMember::forming_error() const {
  const auto what = failure();
  return Error(ErrorKind::kIo, "{} cannot form a group of {}: {}", describe(rank()), size(),
               what ? what->message : "nobody knows why");
}

Status GlooMember::form(const GlooGroupOptions& options) {
  const Moment deadline = std::chrono::steady_clock::now() + options.timeout;
  const SigpipeGuard guard;
  const std::stop_callback stop(options.stop, [this] { abort("told to stop while it formed"); });

  auto addresses =
      options.rendezvous->exchange(rank(), size(), watch_->address(), deadline, options.stop);
  if (!addresses.ok()) {
    if (failed()) return forming_error();
    return std::move(addresses).error().context("{} cannot form a group of {}", describe(rank()),
                                                size());
  }
  std::vector<std::string> greetings(static_cast<size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    greetings[static_cast<size_t>(r)] =
        (plane_ != nullptr ? plane_->address() : "") + '\n' + wire_->address_for(r);
  }
  MUSTER_RETURN_IF_ERROR(watch_->start(*addresses, std::move(greetings), handlers()));
  watch_->set_alarm(deadline);
  if (!connect_all() || !agree_on_memory(deadline)) return forming_error();
  watch_->set_alarm(std::nullopt);
  if (failed()) return forming_error();
  return {};
}

PeerWatch::Handlers GlooMember::handlers() {
  PeerWatch::Handlers handlers;
  handlers.lost = [this](int peer, const std::string& how) {
    fail({.kind = FailureKind::kPeerLost,
          .culprit = peer,
          .message = fmt::format("{} {}", describe(peer), how)});
  };
  handlers.failed = [this](int /*peer*/, Failure failure) { fail(std::move(failure)); };
  handlers.alarm = [this] {
    const std::vector<int> silent = watch_->unheard();
    const int culprit = silent.empty() ? connecting_to_.load() : silent[0];
    fail({.kind = FailureKind::kDeadline,
          .culprit = culprit,
          .message =
              culprit == kNobody
                  ? std::string("connecting took too long")
                  : fmt::format("{} gave an address but did not connect in time{}",
                                describe(culprit), silent.size() > 1 ? " (nor did others)" : "")});
  };
  handlers.asked = [this](std::string_view question) { return answer(question); };
  return handlers;
}

bool GlooMember::connect_all() {
  // The alarm goes off at the deadline and ends this.
  if (!watch_->wait_all(Moment::max())) return false;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    connecting_to_ = r;
    try {
      const std::string greeting = watch_->greeting(r);
      wire_->connect(r, greeting.substr(greeting.find('\n') + 1));
    } catch (const std::exception& e) {
      return broken(r, Operation{.kind = OpKind::kBarrier, .deadline = {}}, e.what());
    }
  }
  return !failed();
}

// Shared memory is used if everyone can see everyone's: one that cannot speaks for all.
bool GlooMember::agree_on_memory(Moment deadline) {
  bool usable = plane_ != nullptr;
  for (int r = 0; usable && r < size(); ++r) {
    if (r == rank()) continue;
    const std::string greeting = watch_->greeting(r);
    usable = plane_->open(r, greeting.substr(0, greeting.find('\n')));
  }
  auto cannot = static_cast<std::byte>(usable ? 0 : 1);
  const Operation vote{.kind = OpKind::kAllreduce,
                       .reduction = Reduction::kMaxUint8,
                       .number = ~uint64_t{0},  // before all others
                       .count = 1,
                       .deadline = deadline};
  if (!run_allreduce(vote, &cannot)) return false;
  use_plane_ = cannot == std::byte{0};
  return true;
}

void GlooMember::shut(const Failure* failure) {
  watch_->say(failure);
  watch_->give_up();
  if (plane_ != nullptr) {
    if (failure == nullptr) plane_->leave();
    plane_->close();
  }
  wire_->close();
}

GlooMember::Channel& GlooMember::channel(uint32_t tag) {
  const std::lock_guard lock(channels_mutex_);
  auto& slot = channels_[tag];
  if (slot == nullptr) {
    slot = std::make_unique<Channel>();
    for (int r = 0; r < size(); ++r) {
      slot->lines.push_back(r == rank() ? nullptr : std::make_unique<Line>(*wire_, inline_bytes_));
    }
  }
  return *slot;
}

std::string GlooMember::answer(std::string_view question) const {
  Whereabouts here;
  const auto tag = from_bytes<uint32_t>(question);
  if (tag && *tag < kCollectiveTags) {
    here.number = places_[*tag].number.load();
    here.waits_for = places_[*tag].waits_for.load();
  }
  return to_bytes(here);
}

// We wait for a peer, which may itself wait for another. Everyone is asked; whoever answers passes
// the question on to the one it waits for, and at the end of the chain is one that is silent or
// that waits for nobody.
std::pair<int, std::string> GlooMember::find_culprit(int peer, const Operation& op) {
  const bool transfer = op.kind == OpKind::kSend || op.kind == OpKind::kRecv;
  const uint32_t tag = transfer ? kCollectiveTags : op.tag;
  const auto answers = watch_->ask(to_bytes(tag), kAnswer);
  std::vector<bool> seen(static_cast<size_t>(size()));
  seen[static_cast<size_t>(rank())] = true;
  int suspect = peer;
  while (true) {
    const auto i = static_cast<size_t>(suspect);
    seen[i] = true;
    const auto there = from_bytes<Whereabouts>(answers[i].value_or(""));
    if (!there) return {suspect, "is silent: it is stopped, hung or cut off"};
    const bool elsewhere = there->waits_for == kNobody || there->number != op.number;
    if (elsewhere) return {suspect, "lives, but did not come"};
    const int next = there->waits_for;
    if (next < 0 || next >= size() || seen[static_cast<size_t>(next)]) {
      return {suspect, "lives and takes part, but too slowly"};
    }
    suspect = next;
  }
}

bool GlooMember::late(int peer, const Operation& op) {
  const auto [culprit, how] = find_culprit(peer, op);
  // Silent, because it has said its last words already? Then they count: if this process was
  // stopped for a while, they blame it, and rightly.
  if (watch_->is_over(culprit)) wait_failed(kVerdict);
  return fail(
      {.kind = FailureKind::kDeadline,
       .culprit = culprit,
       .message = fmt::format("{} {} ({} waited for it in {} until the deadline)",
                              describe(culprit), how, describe(rank()), comm::describe(op))});
}

bool GlooMember::left(int peer, const Operation& op) {
  return fail({.kind = FailureKind::kPeerLost,
               .culprit = peer,
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
               .culprit = peer,
               .message = fmt::format("the connection to {} broke: {}", describe(peer), error)});
}

bool GlooMember::disagree(int peer, const Operation& op, const Call& theirs) {
  const bool readable = theirs.magic == Call::kMagic;
  return fail({.kind = FailureKind::kDisagreement,
               .culprit = peer,
               .message = fmt::format(
                   "{} called {} where {} called {}", describe(peer),
                   readable ? comm::describe(operation_of(theirs, op.tag)) : "something unreadable",
                   describe(rank()), comm::describe(op))});
}

}  // namespace muster::comm
