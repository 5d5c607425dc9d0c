// How the Gloo backend forms a group: the rendezvous, the watch connections, Gloo's connections,
// and the decision whether to use shared memory.
#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "muster/base/thread.h"
#include "muster/comm/gloo_member.h"
#include "muster/comm/local_group.h"

namespace muster::comm {
namespace {

// A member that another one tells of a failure names its own suspect only if it has tried to
// connect for this long: both members of a pair that cannot connect are to name each other.
constexpr auto kTriedForLong = std::chrono::seconds(2);

// A member that notices the deadline later than this, or that began to connect just before it, was
// stopped or starved; before it says anything about its peers it tries for so long.
constexpr auto kOnTime = std::chrono::milliseconds(50);
constexpr auto kCatchUp = std::chrono::seconds(1);

// Peers that one thread connects to one after the other, and threads at most. Connecting one takes
// a round trip and a tick of Gloo's loop, unless a packet is lost, which costs a second.
constexpr int kPeersPerThread = 8;
constexpr int kMostThreads = 16;

// Counts as the operation before all others.
constexpr uint64_t kFormingNumber = ~uint64_t{0};
Operation forming_operation(Moment deadline) {
  return {.kind = OpKind::kAllreduce,
          .reduction = Reduction::kMaxUint8,
          .number = kFormingNumber,
          .count = 1,
          .deadline = deadline};
}

}  // namespace

Result<std::unique_ptr<Group>> make_gloo_group(const GlooGroupOptions& options,
                                               GroupFailure* failure) {
  if (options.names.size() == 1) return solo_group(options.names[0]);
  MUSTER_CHECK(options.device != nullptr && options.rendezvous != nullptr,
               "a group needs a device and a rendezvous");
  GroupFailure ignored;
  GroupFailure& out = failure != nullptr ? *failure : ignored;
  auto member = GlooMember::create(options);
  if (!member.ok()) {
    out = {.origin = options.rank, .message = member.error().message()};
    return std::move(member).error();
  }
  const Status formed = (*member)->form(options);
  if (!formed.ok()) {
    out = (*member)->failure().value_or(GroupFailure{.message = formed.error().message()});
    return formed.error();
  }
  return std::unique_ptr<Group>(std::move(*member));
}

Error GlooMember::forming_error() const {
  const auto what = failure();
  return Error(ErrorKind::kIo, "{} cannot form a group of {}: {}", describe(rank()), size(),
               what ? what->message : "the reason is unknown");
}

Status GlooMember::form(const GlooGroupOptions& options) {
  Moment deadline = std::chrono::steady_clock::now() + options.timeout;
  const SigpipeGuard guard;
  const std::stop_callback stop(options.stop, [this] { abort("told to stop while it formed"); });

  const std::string host = options.host.empty() ? host_id() : options.host;
  auto exchanged = options.rendezvous->exchange(rank(), size(), watch_->address() + '\n' + host,
                                                deadline, options.stop);
  if (!exchanged.ok()) {
    if (failed()) return forming_error();
    const bool late = std::chrono::steady_clock::now() >= deadline;
    fail({.kind = late ? FailureKind::kDeadline : FailureKind::kInternal,
          .message = exchanged.error().message()});
    return std::move(exchanged).error().context("{} cannot form a group of {}", describe(rank()),
                                                size());
  }
  std::vector<std::string> addresses;
  std::vector<std::string> hosts;
  for (const std::string& blob : *exchanged) {
    const size_t end = std::min(blob.find('\n'), blob.size());
    addresses.push_back(blob.substr(0, end));
    hosts.push_back(blob.substr(std::min(end + 1, blob.size())));
  }
  find_hosts(hosts);
  MUSTER_RETURN_IF_ERROR(listen_for_peers());
  if (options.shared_memory && host_members_.size() > 1) {
    plane_ = SharedPlane::create(rank(), host_members_);
    plane_made_.store(plane_ != nullptr, std::memory_order_release);
  }
  std::vector<std::string> greetings(static_cast<size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    greetings[static_cast<size_t>(r)] = (plane_ != nullptr ? plane_->address() : "") + '\n' +
                                        (can_send(rank(), r) ? wire_->address_for(r) : "");
  }
  connecting_since_ = std::chrono::steady_clock::now();
  // The exchange may have waited for a member for long; connecting has its time all the same.
  deadline = connecting_since_.load() + options.timeout;
  places_[0].number = kFormingNumber;
  // A link that is cut matters between members that exchange data; they tell the others.
  watch_->notice_silence_of(topology_.peers(rank()));
  MUSTER_RETURN_IF_ERROR(watch_->start(addresses, std::move(greetings), handlers()));
  if (!connect_watch(deadline) || !connect_wire(deadline) ||
      !agree_on_memory(options.shared_memory, deadline)) {
    return forming_error();
  }
  forming_ = false;
  if (failed()) return forming_error();
  return {};
}

PeerWatch::Handlers GlooMember::handlers() {
  PeerWatch::Handlers handlers;
  handlers.lost = [this](int peer, PeerWatch::Loss loss, const std::string& how) {
    const bool unreachable = loss == PeerWatch::Loss::kUnreachable;
    fail({.kind = FailureKind::kPeerLost,
          .origin = peer,
          .suspect = unreachable ? peer : unreached_for_long(),
          .message = fmt::format("{} {}{}", describe(peer), how,
                                 unreachable ? fmt::format(" (from {})", describe(rank())) : "")});
  };
  handlers.failed = [this](int /*peer*/, GroupFailure failure) {
    failure.suspect = unreached_for_long();
    fail(std::move(failure));
  };
  handlers.left = [this](int peer) {
    if (plane_ != nullptr) plane_->note_left(peer);
  };
  // Ends the waits of connect_wire(), which then finds out what it was waiting for.
  handlers.alarm = [this] { wire_->close(); };
  handlers.asked = [this](std::string_view question) { return answer(question); };
  return handlers;
}

// The first peer with which no connection stands, if this member has tried for long enough to say.
int GlooMember::unreached_for_long() const {
  if (!forming_) return kNobody;
  const auto now = std::chrono::steady_clock::now();
  const Moment since = connecting_since_;
  if (since > now || now - since < kTriedForLong) return kNobody;
  if (!watch_->trouble().empty()) return kNobody;
  const auto missing = watch_->missing();
  return missing.unreached.empty() ? kNobody : missing.unreached.front();
}

// What this member waits for while it connects.
int GlooMember::unconnected() const {
  const auto missing = watch_->missing();
  if (!missing.unreached.empty()) return missing.unreached.front();
  if (!missing.silent.empty()) return missing.silent.front();
  for (const int r : topology_.peers(rank())) {
    if (!wired_[static_cast<size_t>(r)]) return r;
  }
  return kNobody;
}

bool GlooMember::connect_watch(Moment deadline) {
  if (watch_->wait_all(deadline)) return true;
  // A process that was itself stopped until the deadline knows nothing of its peers yet.
  const Moment now = std::chrono::steady_clock::now();
  const bool stopped = now - deadline > kOnTime || now - connecting_since_.load() < kCatchUp;
  if (stopped && watch_->wait_all(now + kCatchUp)) return true;
  if (failed()) return false;
  const auto missing = watch_->missing();
  const size_t count = missing.unreached.size() + missing.silent.size();
  if (count == 0) return true;  // just now
  const bool unreached = !missing.unreached.empty();
  const int peer = unreached ? missing.unreached.front() : missing.silent.front();
  const std::string trouble = watch_->trouble();
  return fail(
      {.kind = FailureKind::kDeadline,
       .origin = trouble.empty() ? peer : rank(),
       .suspect = trouble.empty() ? peer : kNobody,
       .message = fmt::format(
           "{} gave an address, but {}{}{}", describe(peer),
           unreached ? "no connection with it could be made in time" : "it did not connect in time",
           count > 1 ? fmt::format(" (nor did {} others)", count - 1) : "",
           trouble.empty() ? "" : "; " + trouble)});
}

// Several peers at a time, each thread taking the lowest rank that is left. That order matters: of
// all pairs that are not connected yet, both members of the lowest are at it, so that the threads
// of all members cannot wait for each other in a circle.
bool GlooMember::connect_wire(Moment deadline) {
  const std::vector<int>& peers = topology_.peers(rank());
  std::mutex mutex;
  size_t next = 0;
  std::optional<std::pair<int, std::string>> error;  // the first: rank, and what Gloo says
  const auto connect = [&] {
    while (true) {
      int peer = 0;
      {
        const std::lock_guard lock(mutex);
        if (next >= peers.size() || error) return;
        peer = peers[next++];
      }
      try {
        const std::string greeting = watch_->greeting(peer);
        wire_->connect(peer, greeting.substr(greeting.find('\n') + 1));
        wired_[static_cast<size_t>(peer)] = true;
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex);
        if (!error) error.emplace(peer, e.what());
      }
    }
  };
  watch_->set_alarm(deadline);
  {
    const int wanted = std::min(kMostThreads, static_cast<int>(peers.size()) / kPeersPerThread);
    std::vector<Thread> helpers;
    for (int i = 1; i < wanted; ++i) helpers.emplace_back("muster-connect", connect);
    connect();
    for (Thread& helper : helpers) helper.join();
  }
  watch_->set_alarm(std::nullopt);
  if (!error) return !failed();
  const Operation op = forming_operation(deadline);
  if (std::chrono::steady_clock::now() < deadline) return broken(error->first, op, error->second);
  const int peer = unconnected();
  if (failed() || peer == kNobody) return broken(error->first, op, error->second);
  const Verdict verdict = find_origin(peer, op);
  if (watch_->is_over(verdict.origin)) return broken(verdict.origin, op, error->second);
  const bool pair = verdict.origin == peer && verdict.waits_for_us;
  return fail({.kind = FailureKind::kDeadline,
               .origin = verdict.origin,
               .suspect = verdict.silent || pair ? verdict.origin : kNobody,
               .message = pair
                              ? fmt::format("the data connection with {} could not be made in time",
                                            describe(peer))
                              : fmt::format("{} {} (connecting took too long)",
                                            describe(verdict.origin), verdict.how)});
}

void GlooMember::find_hosts(const std::vector<std::string>& ids) {
  std::map<std::string, int> first;  // rank of each host
  for (int r = 0; r < size(); ++r) {
    const auto& id = ids[static_cast<size_t>(r)];
    const bool leads = first.emplace(id, r).second;
    if (r == rank()) {
      all_.me = all_.size();
      if (leads) leaders_.me = leaders_.size();
    }
    all_.ranks.push_back(r);
    if (leads) leaders_.ranks.push_back(r);
    if (id == ids[static_cast<size_t>(rank())]) host_members_.push_back(r);
  }
  topology_ = Topology(size(), leaders_.ranks);
}

Status GlooMember::listen_for_peers() {
  const auto& peers = topology_.peers(rank());
  try {
    wire_->listen(peers);
  } catch (const std::exception& e) {
    if (failed()) return forming_error();
    const auto what = fmt::format(
        "Gloo cannot listen for {} peers of a group (too many open files? see `ulimit -n`): {}",
        peers.size(), e.what());
    fail({.kind = FailureKind::kInternal, .origin = rank(), .message = what});
    return Error(ErrorKind::kMachine, "{} cannot form a group of {}: {}", describe(rank()), size(),
                 what);
  }
  return {};
}

// Shared memory is used if every member can use that of all others on its host: one that cannot
// decides for all.
bool GlooMember::agree_on_memory(bool wanted, Moment deadline) {
  bool usable = wanted && (plane_ != nullptr || host_members_.size() == 1);
  for (const int r : host_members_) {
    if (!usable || r == rank()) continue;
    const std::string greeting = watch_->greeting(r);
    usable = plane_->open(r, greeting.substr(0, greeting.find('\n')));
  }
  auto cannot = static_cast<std::byte>(usable ? 0 : 1);
  if (!run_allreduce(forming_operation(deadline), &cannot)) return false;
  if (cannot != std::byte{0} || leaders_.size() == size()) return true;
  use_ = leaders_.size() == 1 ? Use::kSharedMemory : Use::kHosts;
  return true;
}

}  // namespace muster::comm
