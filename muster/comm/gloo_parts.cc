// Large reductions of the Gloo backend: by parts.
//
// The data is cut into segments: while one is on the wire, another is being added up, and the sum
// goes out while it is still in the cache.
#include <algorithm>
#include <cstddef>

#include "muster/comm/gloo_member.h"
#include "muster/comm/gloo_message_ids.h"

namespace muster::comm {
namespace {

// Receives of parts that are under way at a time.
constexpr size_t kWindow = 4;

}  // namespace

// One reduction by parts: each member adds up its own part of everybody's data, and with
// `distribute` hands the result to all.
//
// In place, and yet without a copy: a peer's result for its part s overwrites our data there, but
// that peer computed it from what we had sent from there, so it was on its way already.
struct GlooMember::PartsReduction {
  PartsReduction(GlooMember& member, const Team& members, const Operation& operation,
                 std::byte* bytes, bool with_results)
      : m(member),
        team(members),
        op(operation),
        data(bytes),
        distribute(with_results),
        c(member.channel(operation.tag)),
        part_id(data_id(MessageClass::kParts, operation)),
        result_id(data_id(MessageClass::kResults, operation)),
        step(kSegmentBytes / operation.element),
        mine(part_of(operation.count, members.me, members.size())),
        // Part 0 is the largest.
        inlined(part_of(operation.count, 0, members.size()).size * operation.element <=
                member.inline_bytes_) {}

  Link& link(int r) { return m.link(c, r); }
  // The peers in turn, k = 1 .. peers(), and their parts.
  int peer(int k) const { return team.rank(team.me + k); }
  Part part(int k) const { return part_of(op.count, (team.me + k) % team.size(), team.size()); }
  int peers() const { return team.size() - 1; }
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
    return m.post_recv(link(p).parts, p, part_id, scratch(item), segment_of(item).size * op.element,
                       op);
  }

  bool post_receives() {
    for (int k = 1; k <= peers(); ++k) {
      if (!m.expect_opening(link(peer(k)), peer(k), op)) return false;
    }
    if (!inlined) {
      c.scratch.resize(kWindow * kSegmentBytes);
      for (size_t i = 0; i < std::min(kWindow, items()); ++i) {
        if (!expect_item(i)) return false;
      }
    }
    if (!distribute) return true;
    for (int k = 1; k <= peers(); ++k) {
      const Part part = this->part(k);
      for (size_t s = 0; s < segments(part); ++s) {
        const Part seg = segment(part, s);
        if (!m.post_recv(link(peer(k)).results, peer(k), result_id, at(seg.begin),
                         seg.size * op.element, op)) {
          return false;
        }
      }
    }
    return true;
  }

  bool post_parts() {
    for (int k = 1; k <= peers(); ++k) {
      const Part part = this->part(k);
      if (!m.send_opening(link(peer(k)), peer(k), at(part.begin),
                          inlined ? part.size * op.element : 0, op)) {
        return false;
      }
    }
    if (inlined) return true;
    for (int k = 1; k <= peers(); ++k) {
      const Part part = this->part(k);
      for (size_t s = 0; s < segments(part); ++s) {
        const Part seg = segment(part, s);
        if (!m.post_send(link(peer(k)).parts, peer(k), part_id, at(seg.begin),
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
      if (!m.post_send(link(peer(k)).results, peer(k), result_id, at(seg.begin),
                       seg.size * op.element, op)) {
        return false;
      }
    }
    return true;
  }

  bool add_up() {
    for (int k = 1; k <= peers(); ++k) {
      if (!m.await_opening(link(peer(k)), peer(k), op)) return false;
      if (inlined) {
        reduce_into(op.reduction, at(mine.begin), link(peer(k)).in_data(), mine.size);
      }
    }
    if (inlined) return send_result(mine);
    for (size_t i = 0; i < items(); ++i) {
      const Part seg = segment_of(i);
      if (!m.await_recv(link(peer_of(i)).parts, peer_of(i), op)) return false;
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
      Link& l = link(peer(k));
      const Part theirs = part(k);
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
  const Team& team;
  const Operation& op;
  std::byte* const data;
  const bool distribute;
  Channel& c;
  const uint64_t part_id;
  const uint64_t result_id;
  const size_t step;  // elements of a segment
  const Part mine;
  const bool inlined;  // the parts travel with the openings
};

bool GlooMember::exchange_parts(const Team& team, const Operation& op, std::byte* data,
                                bool distribute) {
  PartsReduction x(*this, team, op, data, distribute);
  return x.post_receives() && x.post_parts() && x.add_up() && x.finish();
}

}  // namespace muster::comm
