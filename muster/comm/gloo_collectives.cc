// The algorithms of the Gloo backend.
//
// Every member is connected to every other, so most of them are direct: what a member needs from
// another comes in one message, not around a ring. That is the least latency and, with parts of
// 1/size of the data, also the least bytes (those of a ring, 2 (size-1)/size of the data each way);
// and whoever is missing is known by name. Only tiny reductions and broadcasts in groups of more
// than kDirect go by a tree.
//
// Large data is cut into segments: while one is on the wire, another is being added up, and the sum
// goes out while it is still in the cache.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "muster/comm/gloo_member.h"

namespace muster::comm {
namespace {

constexpr int kDirect = 8;
// Of parts: each is received into scratch, added, and sent on from the second-level cache.
constexpr size_t kSegmentBytes = 512 << 10;
// Receives of parts that are under way at a time.
constexpr size_t kWindow = 4;

enum class SlotClass : uint64_t { kOpening = 1, kParts = 2, kResults = 3, kLetter = 4, kBody = 5 };

uint64_t opening_slot(SlotClass c, uint32_t tag) { return static_cast<uint64_t>(c) << 56 | tag; }

// A message longer than its receive would end the process (gloo_wire.h), so data only meets if
// both sides made the same call: the slot is a digest of it.
uint64_t data_slot(SlotClass c, const Operation& op, OpKind kind, int peer) {
  uint64_t h = 0x9e3779b97f4a7c15;
  const auto mix = [&h](uint64_t v) {
    h = (h ^ v) * 0xbf58476d1ce4e5b9;
    h ^= h >> 29;
  };
  mix(op.tag);
  mix(static_cast<uint64_t>(kind) << 8 | static_cast<uint64_t>(op.reduction));
  mix(static_cast<uint64_t>(peer));
  mix(op.number);
  mix(op.count);
  mix(op.element);
  return static_cast<uint64_t>(c) << 56 | (h >> 8);
}
uint64_t data_slot(SlotClass c, const Operation& op) { return data_slot(c, op, op.kind, op.peer); }

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

void GlooMember::waits_for(int peer, const Operation& op) {
  if (op.kind == OpKind::kSend || op.kind == OpKind::kRecv) return;
  places_[op.tag].waits_for.store(peer, std::memory_order_relaxed);
}

bool GlooMember::post_send(Endpoint& end, int peer, uint64_t slot, const void* data, size_t bytes,
                           const Operation& op) {
  return end.send(peer, slot, data, bytes) || broken(peer, op, end.error());
}

bool GlooMember::post_recv(Endpoint& end, int peer, uint64_t slot, void* data, size_t bytes,
                           const Operation& op) {
  return end.recv(peer, slot, data, bytes) || broken(peer, op, end.error());
}

bool GlooMember::await_send(Endpoint& end, int peer, const Operation& op) {
  waits_for(peer, op);
  switch (end.wait_send(op.deadline)) {
    case Endpoint::Outcome::kDone:
      return true;
    case Endpoint::Outcome::kLate:
      return late(peer, op);
    case Endpoint::Outcome::kClosed:
    case Endpoint::Outcome::kBroken:
      return broken(peer, op, end.error());
  }
  return false;
}

bool GlooMember::await_recv(Endpoint& end, int peer, const Operation& op) {
  waits_for(peer, op);
  switch (end.wait_recv(op.deadline)) {
    case Endpoint::Outcome::kDone:
      return true;
    case Endpoint::Outcome::kLate:
      return late(peer, op);
    case Endpoint::Outcome::kClosed:
    case Endpoint::Outcome::kBroken:
      return broken(peer, op, end.error());
  }
  return false;
}

bool GlooMember::expect_opening(Line& line, int peer, const Operation& op) {
  return post_recv(line.opening, peer, opening_slot(SlotClass::kOpening, op.tag), line.in.data(),
                   line.in.size(), op);
}

bool GlooMember::send_opening(Line& line, int peer, const void* data, size_t bytes,
                              const Operation& op) {
  const Opening opening = opening_of(op);
  std::memcpy(line.out.data(), &opening, sizeof(opening));
  if (bytes > 0) std::memcpy(line.out_data(), data, bytes);
  return post_send(line.opening, peer, opening_slot(SlotClass::kOpening, op.tag), line.out.data(),
                   sizeof(opening) + bytes, op);
}

bool GlooMember::await_opening(Line& line, int peer, const Operation& op) {
  if (!await_recv(line.opening, peer, op)) return false;
  Opening theirs;
  std::memcpy(&theirs, line.in.data(), sizeof(theirs));
  const bool same = theirs.magic == Opening::kMagic && same_call(operation_of(theirs, op.tag), op);
  return same || disagree(peer, op, theirs);
}

bool GlooMember::run_allreduce(const Operation& op, std::byte* data) {
  const Presence presence(*this, op);
  if (op.bytes() <= inline_bytes_) {
    return size() <= kDirect ? allreduce_direct(op, data) : allreduce_tree(op, data);
  }
  return exchange_parts(op, data, true);
}

bool GlooMember::run_reduce_scatter(const Operation& op, std::byte* data) {
  const Presence presence(*this, op);
  return exchange_parts(op, data, false);
}

// Small: everyone sends everything to everyone and adds up for itself.
bool GlooMember::allreduce_direct(const Operation& op, std::byte* data) {
  Channel& c = channel(op.tag);
  const auto line = [&](int r) -> Line& { return *c.lines[static_cast<size_t>(r)]; };
  const auto peer = [&](int step) { return (rank() + step) % size(); };
  for (int step = 1; step < size(); ++step) {
    if (!expect_opening(line(peer(step)), peer(step), op)) return false;
  }
  for (int step = 1; step < size(); ++step) {
    if (!send_opening(line(peer(step)), peer(step), data, op.bytes(), op)) return false;
  }
  for (int step = 1; step < size(); ++step) {
    if (!await_opening(line(peer(step)), peer(step), op)) return false;
  }
  for (int step = 1; step < size(); ++step) {
    if (!await_send(line(peer(step)).opening, peer(step), op)) return false;
  }
  if (op.reduction != Reduction::kSumFloat) {
    for (int step = 1; step < size(); ++step) {
      reduce_into(op.reduction, data, line(peer(step)).in_data(), op.count);
    }
    return true;
  }
  // Floats are added in the order of ranks, so that all members get the same bits.
  const auto term = [&](int r) { return r == rank() ? data : line(r).in_data(); };
  std::byte* sum = term(0);
  if (rank() != 0) {
    // Ranks below ours first; then ours, in the place of rank 0's; then the rest.
    for (int r = 1; r < size(); ++r) reduce_into(op.reduction, sum, term(r), op.count);
    if (op.count > 0) std::memcpy(data, sum, op.bytes());
  } else {
    for (int r = 1; r < size(); ++r) reduce_into(op.reduction, sum, term(r), op.count);
  }
  return true;
}

// Small, in a large group: up a binomial tree to rank 0 and down again. A member's parent is itself
// without its lowest bit.
bool GlooMember::allreduce_tree(const Operation& op, std::byte* data) {
  Channel& c = channel(op.tag);
  const auto line = [&](int r) -> Line& { return *c.lines[static_cast<size_t>(r)]; };
  const int lowest = rank() == 0 ? size() : rank() & -rank();
  std::vector<int> children;
  for (int bit = 1; bit < lowest && rank() + bit < size(); bit <<= 1) {
    children.push_back(rank() + bit);
  }
  for (const int child : children) {
    if (!expect_opening(line(child), child, op)) return false;
  }
  for (const int child : children) {
    if (!await_opening(line(child), child, op)) return false;
    reduce_into(op.reduction, data, line(child).in_data(), op.count);
  }
  if (rank() != 0) {
    const int parent = rank() - lowest;
    if (!expect_opening(line(parent), parent, op)) return false;
    if (!send_opening(line(parent), parent, data, op.bytes(), op)) return false;
    if (!await_opening(line(parent), parent, op)) return false;
    if (!await_send(line(parent).opening, parent, op)) return false;
    if (op.count > 0) std::memcpy(data, line(parent).in_data(), op.bytes());
  }
  for (const int child : children) {
    if (!send_opening(line(child), child, data, op.bytes(), op)) return false;
  }
  for (const int child : children) {
    if (!await_send(line(child).opening, child, op)) return false;
  }
  return true;
}

// One reduction by parts: each member adds up its own part of everybody's data, and with
// `distribute` hands the result to all.
//
// In place, and yet without a copy: a peer's result for its part s overwrites our data there, but
// that peer computed it from what we had sent from there, so it was on its way already.
struct GlooMember::Exchange {
  Exchange(GlooMember& member, const Operation& operation, std::byte* bytes, bool with_results)
      : m(member),
        op(operation),
        data(bytes),
        distribute(with_results),
        c(member.channel(operation.tag)),
        part_slot(data_slot(SlotClass::kParts, operation)),
        result_slot(data_slot(SlotClass::kResults, operation)),
        step(kSegmentBytes / operation.element),
        mine(part_of(operation.count, member.rank(), member.size())),
        // Part 0 is the largest.
        inlined(part_of(operation.count, 0, member.size()).size * operation.element <=
                member.inline_bytes_) {}

  Line& line(int r) { return *c.lines[static_cast<size_t>(r)]; }
  int peer(int k) const { return (m.rank() + k) % m.size(); }
  int peers() const { return m.size() - 1; }
  size_t segments(const Part& part) const { return (part.size + step - 1) / step; }
  // Segment s of a part.
  Part segment(const Part& part, size_t s) const {
    return {part.begin + s * step, std::min(step, part.size - s * step)};
  }
  std::byte* at(size_t element) { return data + element * op.element; }
  std::byte* scratch(size_t item) { return c.scratch.data() + item % kWindow * kSegmentBytes; }
  // Parts of others arrive as a sequence of items: all peers' first segments, then all second ones.
  size_t items() const { return inlined ? 0 : segments(mine) * static_cast<size_t>(peers()); }
  int peer_of(size_t item) const {
    return peer(1 + static_cast<int>(item % static_cast<size_t>(peers())));
  }
  Part segment_of(size_t item) const { return segment(mine, item / static_cast<size_t>(peers())); }

  bool expect_item(size_t item) {
    const int p = peer_of(item);
    return m.post_recv(line(p).parts, p, part_slot, scratch(item),
                       segment_of(item).size * op.element, op);
  }

  bool post_receives() {
    for (int k = 1; k <= peers(); ++k) {
      if (!m.expect_opening(line(peer(k)), peer(k), op)) return false;
    }
    if (!inlined) {
      c.scratch.resize(kWindow * kSegmentBytes);
      for (size_t i = 0; i < std::min(kWindow, items()); ++i) {
        if (!expect_item(i)) return false;
      }
    }
    if (!distribute) return true;
    for (int k = 1; k <= peers(); ++k) {
      const Part part = part_of(op.count, peer(k), m.size());
      for (size_t s = 0; s < segments(part); ++s) {
        const Part seg = segment(part, s);
        if (!m.post_recv(line(peer(k)).results, peer(k), result_slot, at(seg.begin),
                         seg.size * op.element, op)) {
          return false;
        }
      }
    }
    return true;
  }

  bool post_parts() {
    for (int k = 1; k <= peers(); ++k) {
      const Part part = part_of(op.count, peer(k), m.size());
      if (!m.send_opening(line(peer(k)), peer(k), at(part.begin),
                          inlined ? part.size * op.element : 0, op)) {
        return false;
      }
    }
    if (inlined) return true;
    for (int k = 1; k <= peers(); ++k) {
      const Part part = part_of(op.count, peer(k), m.size());
      for (size_t s = 0; s < segments(part); ++s) {
        const Part seg = segment(part, s);
        if (!m.post_send(line(peer(k)).parts, peer(k), part_slot, at(seg.begin),
                         seg.size * op.element, op)) {
          return false;
        }
      }
    }
    return true;
  }

  bool send_result(const Part& seg) {
    if (!distribute || seg.size == 0) return true;
    for (int k = 1; k <= peers(); ++k) {
      if (!m.post_send(line(peer(k)).results, peer(k), result_slot, at(seg.begin),
                       seg.size * op.element, op)) {
        return false;
      }
    }
    return true;
  }

  bool add_up() {
    for (int k = 1; k <= peers(); ++k) {
      if (!m.await_opening(line(peer(k)), peer(k), op)) return false;
      if (inlined) {
        reduce_into(op.reduction, at(mine.begin), line(peer(k)).in_data(), mine.size);
      }
    }
    if (inlined) return send_result(mine);
    for (size_t i = 0; i < items(); ++i) {
      const Part seg = segment_of(i);
      if (!m.await_recv(line(peer_of(i)).parts, peer_of(i), op)) return false;
      reduce_into(op.reduction, at(seg.begin), scratch(i), seg.size);
      if (i + kWindow < items() && !expect_item(i + kWindow)) return false;
      const bool last = (i + 1) % static_cast<size_t>(peers()) == 0;
      if (last && !send_result(seg)) return false;
    }
    return true;
  }

  bool finish() {
    const size_t results = distribute ? segments(mine) : 0;
    for (int k = 1; k <= peers(); ++k) {
      Line& l = line(peer(k));
      const Part theirs = part_of(op.count, peer(k), m.size());
      if (!m.await_send(l.opening, peer(k), op)) return false;
      for (size_t s = 0; !inlined && s < segments(theirs); ++s) {
        if (!m.await_send(l.parts, peer(k), op)) return false;
      }
      for (size_t s = 0; distribute && s < segments(theirs); ++s) {
        if (!m.await_recv(l.results, peer(k), op)) return false;
      }
      for (size_t s = 0; s < results; ++s) {
        if (!m.await_send(l.results, peer(k), op)) return false;
      }
    }
    return true;
  }

  GlooMember& m;
  const Operation& op;
  std::byte* const data;
  const bool distribute;
  Channel& c;
  const uint64_t part_slot;
  const uint64_t result_slot;
  const size_t step;  // elements of a segment
  const Part mine;
  const bool inlined;  // the parts travel with the openings
};

bool GlooMember::exchange_parts(const Operation& op, std::byte* data, bool distribute) {
  Exchange x(*this, op, data, distribute);
  return x.post_receives() && x.post_parts() && x.add_up() && x.finish();
}

bool GlooMember::run_allgather(const Operation& op, std::byte* data) {
  const Presence presence(*this, op);
  Channel& c = channel(op.tag);
  const uint64_t slot = data_slot(SlotClass::kResults, op);
  const auto line = [&](int r) -> Line& { return *c.lines[static_cast<size_t>(r)]; };
  const auto peer = [&](int step) { return (rank() + step) % size(); };
  const auto bytes_of = [&](int r) { return part_of(op.count, r, size()).size * op.element; };
  const auto at = [&](int r) { return data + part_of(op.count, r, size()).begin * op.element; };
  const bool inlined = bytes_of(0) <= inline_bytes_;
  for (int k = 1; k < size(); ++k) {
    const int p = peer(k);
    if (!expect_opening(line(p), p, op)) return false;
    if (!inlined && !post_recv(line(p).results, p, slot, at(p), bytes_of(p), op)) return false;
  }
  for (int k = 1; k < size(); ++k) {
    const int p = peer(k);
    if (!send_opening(line(p), p, at(rank()), inlined ? bytes_of(rank()) : 0, op)) return false;
    if (!inlined && !post_send(line(p).results, p, slot, at(rank()), bytes_of(rank()), op)) {
      return false;
    }
  }
  for (int k = 1; k < size(); ++k) {
    const int p = peer(k);
    if (!await_opening(line(p), p, op)) return false;
    if (inlined && bytes_of(p) > 0) std::memcpy(at(p), line(p).in_data(), bytes_of(p));
  }
  for (int k = 1; k < size(); ++k) {
    const int p = peer(k);
    if (!await_send(line(p).opening, p, op)) return false;
    if (inlined) continue;
    if (!await_recv(line(p).results, p, op) || !await_send(line(p).results, p, op)) return false;
  }
  return true;
}

// Down a binomial tree, segment by segment, so that a member passes on what it has while the rest
// is still coming.
bool GlooMember::run_broadcast(const Operation& op, std::byte* data) {
  const Presence presence(*this, op);
  Channel& c = channel(op.tag);
  const auto line = [&](int r) -> Line& { return *c.lines[static_cast<size_t>(r)]; };
  const uint64_t slot = data_slot(SlotClass::kParts, op);
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
    if (!expect_opening(line(parent), parent, op)) return false;
    for (size_t s = 0; s < segments; ++s) {
      if (!post_recv(line(parent).parts, parent, slot, data + begin(s), length(s), op)) {
        return false;
      }
    }
    if (!await_opening(line(parent), parent, op)) return false;
    if (inlined > 0) std::memcpy(data, line(parent).in_data(), inlined);
  }
  for (const int child : children) {
    if (!send_opening(line(child), child, data, inlined, op)) return false;
  }
  for (size_t s = 0; s < segments; ++s) {
    if (place != 0 && !await_recv(line(parent).parts, parent, op)) return false;
    for (const int child : children) {
      if (!post_send(line(child).parts, child, slot, data + begin(s), length(s), op)) return false;
    }
  }
  for (const int child : children) {
    if (!await_send(line(child).opening, child, op)) return false;
    for (size_t s = 0; s < segments; ++s) {
      if (!await_send(line(child).parts, child, op)) return false;
    }
  }
  return true;
}

// In round k everyone tells the one 2^k ahead; after log2(size) rounds everyone has heard, through
// others, of everyone.
bool GlooMember::run_barrier(const Operation& op) {
  const Presence presence(*this, op);
  Channel& c = channel(op.tag);
  const auto line = [&](int r) -> Line& { return *c.lines[static_cast<size_t>(r)]; };
  for (int k = 1; k < size(); k <<= 1) {
    const int to = (rank() + k) % size();
    const int from = (rank() - k + size()) % size();
    if (!expect_opening(line(from), from, op) || !send_opening(line(to), to, nullptr, 0, op) ||
        !await_opening(line(from), from, op) || !await_send(line(to).opening, to, op)) {
      return false;
    }
  }
  return true;
}

// A letter says how long the message is and carries its beginning; the body is the rest. Made anew
// for each call, as there may be many at once.
bool GlooMember::run_send(const Operation& op, const std::byte* data) {
  const SigpipeGuard guard;
  Line line(*wire_, inline_bytes_);
  const size_t inlined = std::min(op.bytes(), inline_bytes_);
  const size_t rest = op.bytes() - inlined;
  const Opening letter = opening_of(op);
  std::memcpy(line.out.data(), &letter, sizeof(letter));
  if (inlined > 0) std::memcpy(line.out_data(), data, inlined);
  const uint64_t body = data_slot(SlotClass::kBody, op, OpKind::kSend, 0);
  if (!post_send(line.opening, op.peer, opening_slot(SlotClass::kLetter, op.tag), line.out.data(),
                 sizeof(letter) + inlined, op)) {
    return false;
  }
  if (rest > 0 && !post_send(line.parts, op.peer, body, data + inlined, rest, op)) return false;
  return await_send(line.opening, op.peer, op) &&
         (rest == 0 || await_send(line.parts, op.peer, op));
}

bool GlooMember::run_recv(const Operation& op, std::byte* data) {
  const SigpipeGuard guard;
  Line line(*wire_, inline_bytes_);
  const size_t inlined = std::min(op.bytes(), inline_bytes_);
  const size_t rest = op.bytes() - inlined;
  const uint64_t body = data_slot(SlotClass::kBody, op, OpKind::kSend, 0);
  if (!post_recv(line.opening, op.peer, opening_slot(SlotClass::kLetter, op.tag), line.in.data(),
                 line.in.size(), op)) {
    return false;
  }
  if (rest > 0 && !post_recv(line.parts, op.peer, body, data + inlined, rest, op)) return false;
  if (!await_recv(line.opening, op.peer, op)) return false;
  Opening letter;
  std::memcpy(&letter, line.in.data(), sizeof(letter));
  if (letter.magic != Opening::kMagic || letter.count != op.count) {
    return disagree(op.peer, op, letter);
  }
  if (inlined > 0) std::memcpy(data, line.in_data(), inlined);
  return rest == 0 || await_recv(line.parts, op.peer, op);
}

}  // namespace muster::comm
