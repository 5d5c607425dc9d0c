// The algorithms of the Gloo backend.
//
// In a group in which all pairs are connected (topology.h) most of them are direct: what a member
// needs from another comes in one message, not around a ring. That is the least latency and, with
// parts of 1/size of the data, also the least bytes (those of a ring, 2 (size-1)/size of the data
// each way); and whoever is missing is known by name. In a larger group they take log2(size) rounds
// with one other member each. Broadcasts go by a tree. Reductions: gloo_allreduce.cc and
// gloo_parts.cc. In a group of several hosts, reductions of tag 0 go from the members of
// each host to its leader and between the leaders: allreduce_by_hosts().
#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "muster/comm/gloo_member.h"
#include "muster/comm/gloo_message_ids.h"

namespace muster::comm {
namespace {

// Parts of an allgather that are larger than this go to one peer after the other.
constexpr size_t kInTurn = size_t{32} << 10;

}  // namespace

// While one lives, this member is in a collective.
class GlooMember::Presence {
 public:
  Presence(GlooMember& member, const Operation& op) : place_(member.places_[op.tag]) {
    place_.number = op.number;
  }
  ~Presence() { place_.waits_for = kNobody; }
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

 private:
  Place& place_;
  const SigpipeGuard guard_;
};

// While one lives, this member sends to or receives from a peer.
class GlooMember::TransferPresence {
 public:
  TransferPresence(GlooMember& member, const Operation& op) : member_(member) {
    const std::lock_guard lock(member_.transfers_mutex_);
    place_ = member_.transfers_.insert(member_.transfers_.end(), {op.kind, op.peer, op.tag});
  }
  ~TransferPresence() {
    const std::lock_guard lock(member_.transfers_mutex_);
    member_.transfers_.erase(place_);
  }
  TransferPresence(const TransferPresence&) = delete;
  TransferPresence& operator=(const TransferPresence&) = delete;

 private:
  GlooMember& member_;
  std::list<Transfer>::iterator place_;
  const SigpipeGuard guard_;
};

void GlooMember::waits_for(int peer, const Operation& op) {
  if (op.kind == OpKind::kSend || op.kind == OpKind::kRecv) return;
  places_[op.tag].waits_for.store(peer, std::memory_order_relaxed);
}

bool GlooMember::post_send(Endpoint& end, int peer, uint64_t id, const void* data, size_t bytes,
                           const Operation& op) {
  return end.send(peer, id, data, bytes) || broken(peer, op, end.error());
}

bool GlooMember::post_recv(Endpoint& end, int peer, uint64_t id, void* data, size_t bytes,
                           const Operation& op) {
  return end.recv(peer, id, data, bytes) || broken(peer, op, end.error());
}

bool GlooMember::ended(Endpoint::Outcome outcome, const Endpoint& end, int peer,
                       const Operation& op) {
  if (outcome == Endpoint::Outcome::kDone) return true;
  // At the deadline of the forming everything is closed as well.
  const bool out_of_time = std::chrono::steady_clock::now() >= op.deadline && !failed();
  return out_of_time ? late(peer, op) : broken(peer, op, end.error());
}

bool GlooMember::await_send(Endpoint& end, int peer, const Operation& op) {
  waits_for(peer, op);
  return ended(end.wait_send(op.deadline), end, peer, op);
}

bool GlooMember::await_recv(Endpoint& end, int peer, const Operation& op) {
  waits_for(peer, op);
  return ended(end.wait_recv(op.deadline), end, peer, op);
}

bool GlooMember::expect_opening(Link& link, int peer, const Operation& op) {
  return post_recv(link.opening, peer, opening_id(MessageClass::kOpening, op.tag), link.in.data(),
                   link.in.size(), op);
}

bool GlooMember::send_opening(Link& link, int peer, const void* data, size_t bytes,
                              const Operation& op) {
  const Call opening = call_of(op);
  std::memcpy(link.out.data(), &opening, sizeof(opening));
  if (bytes > 0) std::memcpy(link.out_data(), data, bytes);
  return post_send(link.opening, peer, opening_id(MessageClass::kOpening, op.tag), link.out.data(),
                   sizeof(opening) + bytes, op);
}

bool GlooMember::await_opening(Link& link, int peer, const Operation& op) {
  if (!await_recv(link.opening, peer, op)) return false;
  Call theirs;
  std::memcpy(&theirs, link.in.data(), sizeof(theirs));
  return same_call(theirs, op) || disagree(peer, op, theirs);
}

// Through shared memory, if that is how this group talks.
bool GlooMember::run_shared(const Operation& op, std::byte* data) {
  return plane_end(plane_->run(op, data, waiting_place(op)), op);
}

bool GlooMember::plane_end(const SharedPlane::End& end, const Operation& op) {
  switch (end.outcome) {
    case SharedPlane::Outcome::kDone:
      return true;
    case SharedPlane::Outcome::kLate:
      return late(end.peer, op);
    case SharedPlane::Outcome::kLeft:
      return left(end.peer, op);
    case SharedPlane::Outcome::kClosed:
      return broken(end.peer, op, "closed");
    case SharedPlane::Outcome::kDisagree:
      return disagree(end.peer, op, end.theirs);
  }
  return false;
}

// In a group of several hosts each collective of tag 0 begins between the members of a host, and
// between the leaders: so that members that call different operations find out.
bool GlooMember::meet(const Operation& op) {
  if (use_ != Use::kHosts || op.tag != 0) return true;
  if (plane_ != nullptr) {
    // The root of a broadcast may be done, and leave, before all others have come.
    const bool needs_all = op.kind != OpKind::kBroadcast;
    std::atomic<int>& place = waiting_place(op);
    const auto end = needs_all ? plane_->meet(op, place) : plane_->meet_again(op, place);
    if (!plane_end(end, op)) return false;
  }
  return leaders_.me == kNobody || barrier_of(leaders_, op);
}

bool GlooMember::run_allreduce(const Operation& op, std::byte* data) {
  const Presence presence(*this, op);
  if (shared(op)) return run_shared(op, data);
  if (use_ == Use::kHosts && op.tag == 0) return allreduce_by_hosts(op, data);
  return allreduce_of(all_, op, data);
}

// Up to the leader through the host's shared memory, between the leaders by TCP, and down again.
bool GlooMember::allreduce_by_hosts(const Operation& op, std::byte* data) {
  std::atomic<int>& place = waiting_place(op);
  const bool alone = plane_ == nullptr;
  if (!alone && !plane_end(plane_->reduce_to_first(op, data, place), op)) return false;
  if (leaders_.me != kNobody && !allreduce_of(leaders_, op, data)) return false;
  if (alone) return true;
  Operation down = op;
  down.kind = OpKind::kBroadcast;
  down.peer = 0;  // the first of the host
  return plane_end(plane_->run(down, data, place), op);
}

bool GlooMember::run_reduce_scatter(const Operation& op, std::byte* data) {
  const Presence presence(*this, op);
  if (shared(op)) return run_shared(op, data);
  if (!meet(op)) return false;
  if (size() <= kAllPairs) return exchange_parts(all_, op, data, false);
  return allreduce_halving(all_, op, data);  // more than is needed, but without further connections
}

bool GlooMember::run_allgather(const Operation& op, std::byte* data) {
  const Presence presence(*this, op);
  if (shared(op)) return run_shared(op, data);
  if (!meet(op)) return false;
  if (size() > kAllPairs) return allgather_doubling(op, data);
  Channel& c = channel(op.tag);
  const uint64_t id = data_id(MessageClass::kResults, op);
  const auto link = [&](int r) -> Link& { return this->link(c, r); };
  const auto peer = [&](int step) { return (rank() + step) % size(); };
  const auto bytes_of = [&](int r) { return part_of(op.count, r, size()).size * op.element; };
  const auto at = [&](int r) { return data + part_of(op.count, r, size()).begin * op.element; };
  const bool inlined = bytes_of(0) <= inline_bytes_;
  for (int k = 1; k < size(); ++k) {
    const int p = peer(k);
    if (!expect_opening(link(p), p, op)) return false;
    if (!inlined && !post_recv(link(p).results, p, id, at(p), bytes_of(p), op)) return false;
  }
  const auto send = [&](int p) {
    return inlined || post_send(link(p).results, p, id, at(rank()), bytes_of(rank()), op);
  };
  // Large parts go to one peer after the other, to the next one when that of the one before on the
  // other side has come. If all were sent at once, they would meet in front of each receiver's
  // link; on a slow one TCP then loses packets, and shares it unevenly.
  const bool in_turn = bytes_of(0) > kInTurn;
  for (int k = 1; k < size(); ++k) {
    const int p = peer(k);
    if (!send_opening(link(p), p, at(rank()), inlined ? bytes_of(rank()) : 0, op)) return false;
    if (!in_turn && !send(p)) return false;
  }
  for (int k = 1; k < size(); ++k) {
    const int p = peer(k);
    if (!await_opening(link(p), p, op)) return false;
    if (inlined && bytes_of(p) > 0) std::memcpy(at(p), link(p).in_data(), bytes_of(p));
  }
  for (int k = 1; k < size(); ++k) {
    const int from = peer(size() - k);
    if (in_turn && !send(peer(k))) return false;
    if (!inlined && !await_recv(link(from).results, from, op)) return false;
  }
  for (int k = 1; k < size(); ++k) {
    const int p = peer(k);
    if (!await_send(link(p).opening, p, op)) return false;
    if (!inlined && !await_send(link(p).results, p, op)) return false;
  }
  return true;
}

// In round k each member passes the parts it has, its own and those of the 2^k - 1 members before
// it, to the one 2^k ahead: after log2(size) rounds all have all parts.
bool GlooMember::allgather_doubling(const Operation& op, std::byte* data) {
  Channel& c = channel(op.tag);
  const uint64_t id = data_id(MessageClass::kResults, op);
  // The parts of `count` members up to `last`, counted round: one or two pieces of the data.
  const auto pieces = [&](int last, int count) {
    const int first = last - count + 1;
    std::vector<std::span<std::byte>> result;
    const auto add = [&](int from, int to) {
      const Part begin = part_of(op.count, from, size());
      const Part end = part_of(op.count, to, size());
      const size_t elements = end.begin + end.size - begin.begin;
      if (elements > 0) {
        result.emplace_back(data + begin.begin * op.element, elements * op.element);
      }
    };
    if (first < 0) add(first + size(), size() - 1);
    add(std::max(first, 0), last);
    return result;
  };
  for (int k = 1; k < size(); k <<= 1) {
    const int count = std::min(k, size() - k);
    const int to = (rank() + k) % size();
    const int from = (rank() - k + size()) % size();
    const auto in = pieces(from, count);
    const auto out = pieces(rank(), count);
    if (!expect_opening(link(c, from), from, op)) return false;
    for (const auto& piece : in) {
      if (!post_recv(link(c, from).results, from, id, piece.data(), piece.size(), op)) return false;
    }
    if (!send_opening(link(c, to), to, nullptr, 0, op)) return false;
    if (!await_opening(link(c, from), from, op)) return false;
    for (const auto& piece : out) {
      if (!post_send(link(c, to).results, to, id, piece.data(), piece.size(), op)) return false;
    }
    if (!await_send(link(c, to).opening, to, op)) return false;
    for (size_t i = 0; i < in.size(); ++i) {
      if (!await_recv(link(c, from).results, from, op)) return false;
    }
    for (size_t i = 0; i < out.size(); ++i) {
      if (!await_send(link(c, to).results, to, op)) return false;
    }
  }
  return true;
}

// Down a binomial tree, segment by segment, so that a member passes on what it has while the rest
// is still coming.
bool GlooMember::run_broadcast(const Operation& op, std::byte* data) {
  const Presence presence(*this, op);
  if (shared(op)) return run_shared(op, data);
  if (!meet(op)) return false;
  Channel& c = channel(op.tag);
  const auto link = [&](int r) -> Link& { return this->link(c, r); };
  const uint64_t id = data_id(MessageClass::kParts, op);
  const int place = (rank() - op.peer + size()) % size();  // the root's is 0
  const int lowest = place == 0 ? size() : place & -place;
  std::vector<int> children;
  for (int bit = std::bit_floor(static_cast<unsigned>(size())); bit > 0; bit >>= 1) {
    if (bit < lowest && place + bit < size()) {
      children.push_back((place + bit + op.peer) % size());  // the largest subtree first
    }
  }
  const int parent = (place - lowest + op.peer + size()) % size();
  const size_t inlined = std::min(op.bytes(), inline_bytes_);
  const size_t segments = (op.bytes() - inlined + kSegmentBytes - 1) / kSegmentBytes;
  const auto begin = [&](size_t s) { return inlined + s * kSegmentBytes; };
  const auto length = [&](size_t s) { return std::min(kSegmentBytes, op.bytes() - begin(s)); };

  if (place != 0) {
    if (!expect_opening(link(parent), parent, op)) return false;
    for (size_t s = 0; s < segments; ++s) {
      if (!post_recv(link(parent).parts, parent, id, data + begin(s), length(s), op)) {
        return false;
      }
    }
    if (!await_opening(link(parent), parent, op)) return false;
    if (inlined > 0) std::memcpy(data, link(parent).in_data(), inlined);
  }
  for (const int child : children) {
    if (!send_opening(link(child), child, data, inlined, op)) return false;
  }
  for (size_t s = 0; s < segments; ++s) {
    if (place != 0 && !await_recv(link(parent).parts, parent, op)) return false;
    for (const int child : children) {
      if (!post_send(link(child).parts, child, id, data + begin(s), length(s), op)) return false;
    }
  }
  for (const int child : children) {
    if (!await_send(link(child).opening, child, op)) return false;
    for (size_t s = 0; s < segments; ++s) {
      if (!await_send(link(child).parts, child, op)) return false;
    }
  }
  return true;
}

bool GlooMember::run_barrier(const Operation& op) {
  const Presence presence(*this, op);
  if (shared(op)) return run_shared(op, nullptr);
  if (use_ != Use::kHosts || op.tag != 0) return barrier_of(all_, op);
  // In, and out again: nobody leaves the second meeting before its leader has left the first.
  return meet(op) &&
         (plane_ == nullptr || plane_end(plane_->meet_again(op, waiting_place(op)), op));
}

// In round k everyone tells the one 2^k ahead; after log2(size) rounds everyone has heard, through
// others, of everyone.
bool GlooMember::barrier_of(const Team& team, const Operation& op) {
  Channel& c = channel(op.tag);
  for (int k = 1; k < team.size(); k <<= 1) {
    const int to = team.rank(team.me + k);
    const int from = team.rank(team.me - k);
    if (!expect_opening(link(c, from), from, op) ||
        !send_opening(link(c, to), to, nullptr, 0, op) || !await_opening(link(c, from), from, op) ||
        !await_send(link(c, to).opening, to, op)) {
      return false;
    }
  }
  return true;
}

// A letter says how long the message is and carries its beginning; the body is the rest. Made anew
// for each call, as there may be many at once.
bool GlooMember::run_send(const Operation& op, const std::byte* data) {
  const TransferPresence presence(*this, op);
  Link link(*wire_, inline_bytes_);
  const size_t inlined = std::min(op.bytes(), inline_bytes_);
  const size_t rest = op.bytes() - inlined;
  const Call letter = call_of(op);
  std::memcpy(link.out.data(), &letter, sizeof(letter));
  if (inlined > 0) std::memcpy(link.out_data(), data, inlined);
  const uint64_t body = data_id(MessageClass::kBody, op);
  if (!post_send(link.opening, op.peer, opening_id(MessageClass::kLetter, op.tag), link.out.data(),
                 sizeof(letter) + inlined, op)) {
    return false;
  }
  if (rest > 0 && !post_send(link.parts, op.peer, body, data + inlined, rest, op)) return false;
  return await_send(link.opening, op.peer, op) &&
         (rest == 0 || await_send(link.parts, op.peer, op));
}

bool GlooMember::run_recv(const Operation& op, std::byte* data) {
  const TransferPresence presence(*this, op);
  Link link(*wire_, inline_bytes_);
  const size_t inlined = std::min(op.bytes(), inline_bytes_);
  const size_t rest = op.bytes() - inlined;
  const uint64_t body = data_id(MessageClass::kBody, op);
  if (!post_recv(link.opening, op.peer, opening_id(MessageClass::kLetter, op.tag), link.in.data(),
                 link.in.size(), op)) {
    return false;
  }
  if (rest > 0 && !post_recv(link.parts, op.peer, body, data + inlined, rest, op)) return false;
  if (!await_recv(link.opening, op.peer, op)) return false;
  Call letter;
  std::memcpy(&letter, link.in.data(), sizeof(letter));
  if (letter.magic != Call::kMagic || letter.count != op.count) {
    return disagree(op.peer, op, letter);
  }
  if (inlined > 0) std::memcpy(data, link.in_data(), inlined);
  return rest == 0 || await_recv(link.parts, op.peer, op);
}

}  // namespace muster::comm
