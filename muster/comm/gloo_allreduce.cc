// How the Gloo backend sums by TCP: which algorithm, and the ones for small data and for many
// members. Few members with much data: gloo_parts.cc.
#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "muster/comm/gloo_member.h"
#include "muster/comm/gloo_message_ids.h"

namespace muster::comm {
namespace {

// Up to so many members, small data goes directly between all.
constexpr int kDirect = 8;
// With more members than kDirect the data goes by halving. If their number is no power of two, some
// members' data takes a detour then: that pays if a member's part of it is no larger than this. A
// message costs about as much as so many bytes; the exchange of parts needs 2 (size-1) of them on
// each member, halving 2 log2(size). Groups larger than kAllPairs are not connected for an
// exchange of parts (topology.h).
constexpr size_t kSmallPart = 128 << 10;
// Receives that are under way at a time.
constexpr size_t kWindow = 4;

}  // namespace

bool GlooMember::allreduce_of(const Team& team, const Operation& op, std::byte* data) {
  if (team.size() == 1) return true;
  if (op.bytes() <= inline_bytes_) {
    return team.size() <= kDirect ? allreduce_direct(team, op, data)
                                  : allreduce_tree(team, op, data);
  }
  if (op.packed && team.size() <= kAllPairs && algorithm_ == Allreduce::kBest) {
    return exchange_packed(team, op, data);
  }
  const bool best =
      team.size() > kDirect && (std::has_single_bit(static_cast<unsigned>(team.size())) ||
                                op.bytes() / static_cast<size_t>(team.size()) <= kSmallPart);
  const bool wanted = algorithm_ == Allreduce::kBest ? best : algorithm_ == Allreduce::kHalving;
  const bool halving = wanted || team.size() > kAllPairs;
  return halving ? allreduce_halving(team, op, data) : exchange_parts(team, op, data, true);
}

// Small: everyone sends everything to everyone and adds up for itself.
bool GlooMember::allreduce_direct(const Team& team, const Operation& op, std::byte* data) {
  Channel& c = channel(op.tag);
  const auto peer = [&](int step) { return team.rank(team.me + step); };
  for (int step = 1; step < team.size(); ++step) {
    if (!expect_opening(link(c, peer(step)), peer(step), op)) return false;
  }
  for (int step = 1; step < team.size(); ++step) {
    if (!send_opening(link(c, peer(step)), peer(step), data, op.bytes(), op)) return false;
  }
  for (int step = 1; step < team.size(); ++step) {
    if (!await_opening(link(c, peer(step)), peer(step), op)) return false;
  }
  for (int step = 1; step < team.size(); ++step) {
    if (!await_send(link(c, peer(step)).opening, peer(step), op)) return false;
  }
  if (op.reduction != Reduction::kSumFloat) {
    for (int step = 1; step < team.size(); ++step) {
      reduce_into(op.reduction, data, link(c, peer(step)).in_data(), op.count);
    }
    return true;
  }
  // Floats are added in the order of ranks, so that all members get the same bits: in the place of
  // the first.
  const auto term = [&](int place) {
    return place == team.me ? data : link(c, team.rank(place)).in_data();
  };
  std::byte* sum = term(0);
  for (int place = 1; place < team.size(); ++place) {
    reduce_into(op.reduction, sum, term(place), op.count);
  }
  if (sum != data && op.count > 0) std::memcpy(data, sum, op.bytes());
  return true;
}

// Small, among many: up a binomial tree to the first and down again. A member's parent has its
// place without the lowest bit.
bool GlooMember::allreduce_tree(const Team& team, const Operation& op, std::byte* data) {
  Channel& c = channel(op.tag);
  const int me = team.me;
  const int lowest = me == 0 ? team.size() : me & -me;
  std::vector<int> children;
  for (int bit = 1; bit < lowest && me + bit < team.size(); bit <<= 1) {
    children.push_back(team.rank(me + bit));
  }
  for (const int child : children) {
    if (!expect_opening(link(c, child), child, op)) return false;
  }
  for (const int child : children) {
    if (!await_opening(link(c, child), child, op)) return false;
    reduce_into(op.reduction, data, link(c, child).in_data(), op.count);
  }
  if (me != 0) {
    const int parent = team.rank(me - lowest);
    Link& up = link(c, parent);
    if (!expect_opening(up, parent, op)) return false;
    if (!send_opening(up, parent, data, op.bytes(), op)) return false;
    if (!await_opening(up, parent, op)) return false;
    if (!await_send(up.opening, parent, op)) return false;
    if (op.count > 0) std::memcpy(data, up.in_data(), op.bytes());
  }
  for (const int child : children) {
    if (!send_opening(link(c, child), child, data, op.bytes(), op)) return false;
  }
  for (const int child : children) {
    if (!await_send(link(c, child).opening, child, op)) return false;
  }
  return true;
}

// Recursive halving and doubling. In round k a member and the one whose place differs in bit k hold
// sums of the same range of the data; each keeps one half of the range, which the other one sends
// it to add. After the last round each member has the whole sum of its own range; the rounds
// backwards hand the ranges round. If the number of members is no power of two, the odd ones of
// the first few pairs give all their data to their neighbour beforehand and get the sum at the end.
//
// Each element is added up by one member, in an order that depends on the places only: so all
// members get the same bits of floats.
struct GlooMember::Halving {
  Halving(GlooMember& member, const Team& members, const Operation& operation, std::byte* bytes)
      : m(member),
        team(members),
        op(operation),
        data(bytes),
        c(member.channel(operation.tag)),
        part_id(data_id(MessageClass::kParts, operation)),
        result_id(data_id(MessageClass::kResults, operation)),
        step(kSegmentBytes / operation.element) {}

  std::byte* at(size_t element) { return data + element * op.element; }
  std::byte* scratch(size_t s) { return c.scratch.data() + s % kWindow * kSegmentBytes; }
  size_t segments(const Part& part) const { return (part.size + step - 1) / step; }
  Part segment(const Part& part, size_t s) const {
    return {part.begin + s * step, std::min(step, part.size - s * step)};
  }

  // Sends `out` to the peer, and adds what it sends to `in`.
  bool trade(int peer, const Part& out, const Part& in) {
    Link& l = m.link(c, peer);
    const bool inlined = std::max(out.size, in.size) * op.element <= m.inline_bytes_;
    const auto expect = [&](size_t s) {
      return m.post_recv(l.parts, peer, part_id, scratch(s), segment(in, s).size * op.element, op);
    };
    if (!m.expect_opening(l, peer, op)) return false;
    if (!inlined && in.size > 0) {
      c.scratch.resize(kWindow * kSegmentBytes);
      for (size_t s = 0; s < std::min(kWindow, segments(in)); ++s) {
        if (!expect(s)) return false;
      }
    }
    if (!m.send_opening(l, peer, at(out.begin), inlined ? out.size * op.element : 0, op)) {
      return false;
    }
    for (size_t s = 0; !inlined && s < segments(out); ++s) {
      const Part seg = segment(out, s);
      if (!m.post_send(l.parts, peer, part_id, at(seg.begin), seg.size * op.element, op)) {
        return false;
      }
    }
    if (!m.await_opening(l, peer, op)) return false;
    if (inlined) reduce_into(op.reduction, at(in.begin), l.in_data(), in.size);
    for (size_t s = 0; !inlined && s < segments(in); ++s) {
      const Part seg = segment(in, s);
      if (!m.await_recv(l.parts, peer, op)) return false;
      reduce_into(op.reduction, at(seg.begin), scratch(s), seg.size);
      if (s + kWindow < segments(in) && !expect(s + kWindow)) return false;
    }
    if (!m.await_send(l.opening, peer, op)) return false;
    for (size_t s = 0; !inlined && s < segments(out); ++s) {
      if (!m.await_send(l.parts, peer, op)) return false;
    }
    return true;
  }

  // The sum of a range, straight into its place. What was there has been sent.
  bool expect_result(int peer, const Part& range) {
    return range.size == 0 || m.post_recv(m.link(c, peer).results, peer, result_id, at(range.begin),
                                          range.size * op.element, op);
  }
  bool await_result(int peer, const Part& range) {
    return range.size == 0 || m.await_recv(m.link(c, peer).results, peer, op);
  }
  bool send_result(int peer, const Part& range) {
    return range.size == 0 || m.post_send(m.link(c, peer).results, peer, result_id, at(range.begin),
                                          range.size * op.element, op);
  }
  bool sent_result(int peer, const Part& range) {
    return range.size == 0 || m.await_send(m.link(c, peer).results, peer, op);
  }

  bool run() {
    const HalvingPlaces places(team.size());
    const Part whole{0, op.count};
    const bool paired = places.paired(team.me);
    const int neighbour = team.rank(team.me ^ 1);
    if (paired && team.me % 2 == 1) {
      return trade(neighbour, whole, {}) && expect_result(neighbour, whole) &&
             await_result(neighbour, whole);
    }
    if (paired && !trade(neighbour, {}, whole)) return false;
    if (!halve_and_double(places)) return false;
    return !paired || (send_result(neighbour, whole) && sent_result(neighbour, whole));
  }

  bool halve_and_double(const HalvingPlaces& places) {
    const int me = places.place(team.me);
    const auto rank_of = [&](int place) { return team.rank(places.member(place)); };
    struct Round {
      int peer;
      Part kept, given;
    };
    std::vector<Round> rounds;
    Part range{0, op.count};
    for (int bit = 1; bit < places.power; bit <<= 1) {
      const Part lower{range.begin, range.size / 2};
      const Part upper{range.begin + lower.size, range.size - lower.size};
      const bool low = (me & bit) == 0;
      const Round now{rank_of(me ^ bit), low ? lower : upper, low ? upper : lower};
      if (!trade(now.peer, now.given, now.kept) || !expect_result(now.peer, now.given)) {
        return false;
      }
      rounds.push_back(now);
      range = now.kept;
    }
    for (size_t i = rounds.size(); i-- > 0;) {
      if (!send_result(rounds[i].peer, rounds[i].kept) ||
          !await_result(rounds[i].peer, rounds[i].given)) {
        return false;
      }
    }
    for (const Round& s : rounds) {
      if (!sent_result(s.peer, s.kept)) return false;
    }
    return true;
  }

  GlooMember& m;
  const Team& team;
  const Operation& op;
  std::byte* const data;
  Channel& c;
  const uint64_t part_id;
  const uint64_t result_id;
  const size_t step;  // elements of a segment
};

bool GlooMember::allreduce_halving(const Team& team, const Operation& op, std::byte* data) {
  return Halving(*this, team, op, data).run();
}

}  // namespace muster::comm
