// Sums of small integers by TCP: like gloo_parts.cc, but what travels is packed
// (exact/packed_ints.h), so that a link is used for the bits that the integers have. The sums are
// the same. Each member packs fast or small, whichever has turned out to be faster on these links
// (packing_choice.h).
//
// How long a message is depends on the values, so receives have room for the longest; Gloo accepts
// a shorter one, and pages that nothing is written to cost no memory.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>

#include "muster/comm/gloo_member.h"
#include "muster/comm/gloo_message_ids.h"
#include "muster/exact/packed_ints.h"

namespace muster::comm {
namespace {

constexpr size_t kSegment = kSegmentBytes / sizeof(int32_t);  // elements

}  // namespace

// One reduction: each member adds up its own part of everybody's data and hands the result to all.
struct GlooMember::PackedReduction {
  PackedReduction(GlooMember& member, const Team& members, const Operation& operation,
                  std::byte* data)
      : m(member),
        team(members),
        op(operation),
        values(reinterpret_cast<int32_t*>(data), operation.count),
        c(member.channel(operation.tag)),
        part_id(data_id(MessageClass::kParts, operation)),
        result_id(data_id(MessageClass::kResults, operation)),
        mine(part_of(operation.count, members.me, members.size())),
        // Part 0 is the largest.
        most(segments(part_of(operation.count, 0, members.size()))),
        room(exact::largest_packed_size(
            std::min(kSegment, part_of(operation.count, 0, members.size()).size))) {
    const size_t slots = most * (3 * static_cast<size_t>(peers()) + 1);
    if (c.packed_bytes >= slots * room) return;
    c.packed_bytes = slots * room;
    c.packed = std::make_unique_for_overwrite<std::byte[]>(c.packed_bytes);
  }

  bool run() {
    const auto begin = std::chrono::steady_clock::now();
    packing = c.packing.next(values.size());
    if (!post_receives() || !send_parts() || !add_up() || !take_results() || !finish())
      return false;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    c.packing.note(values.size(), took.count());
    return true;
  }

  Link& link(int k) { return m.link(c, peer(k)); }
  // The peers in turn, k = 1 .. peers(), and their parts.
  int peer(int k) const { return team.rank(team.me + k); }
  Part part(int k) const { return part_of(op.count, (team.me + k) % team.size(), team.size()); }
  int peers() const { return team.size() - 1; }

  static size_t segments(const Part& part) { return (part.size + kSegment - 1) / kSegment; }
  std::span<int32_t> segment(const Part& part, size_t s) {
    return values.subspan(part.begin + s * kSegment, std::min(kSegment, part.size - s * kSegment));
  }

  // Where the packed segment s to or from peer k stands.
  std::byte* slot(size_t kind, int k, size_t s) {
    const size_t row = kind * static_cast<size_t>(peers()) + static_cast<size_t>(k) - 1;
    return c.packed.get() + (row * most + s) * room;
  }
  std::byte* outgoing(int k, size_t s) { return slot(0, k, s); }
  std::byte* incoming(int k, size_t s) { return slot(1, k, s); }
  std::byte* incoming_result(int k, size_t s) { return slot(2, k, s); }
  std::byte* own_result(size_t s) { return slot(3, 1, s); }

  bool post_receives() {
    for (int k = 1; k <= peers(); ++k) {
      if (!m.expect_opening(link(k), peer(k), op)) return false;
      for (size_t s = 0; s < segments(mine); ++s) {
        if (!m.post_recv(link(k).parts, peer(k), part_id, incoming(k, s), room, op)) return false;
      }
      for (size_t s = 0; s < segments(part(k)); ++s) {
        if (!m.post_recv(link(k).results, peer(k), result_id, incoming_result(k, s), room, op)) {
          return false;
        }
      }
    }
    return true;
  }

  bool send_parts() {
    for (int k = 1; k <= peers(); ++k) {
      if (!m.send_opening(link(k), peer(k), nullptr, 0, op)) return false;
    }
    for (size_t s = 0; s < most; ++s) {
      for (int k = 1; k <= peers(); ++k) {
        if (s >= segments(part(k))) continue;
        const size_t bytes = exact::pack(segment(part(k), s), outgoing(k, s), packing);
        if (!m.post_send(link(k).parts, peer(k), part_id, outgoing(k, s), bytes, op)) return false;
      }
    }
    return true;
  }

  bool malformed(int k) {
    return m.broken(peer(k), op, "it sent data that is not in the format of packed integers");
  }

  bool add_up() {
    for (int k = 1; k <= peers(); ++k) {
      if (!m.await_opening(link(k), peer(k), op)) return false;
    }
    for (size_t s = 0; s < segments(mine); ++s) {
      const auto sums = segment(mine, s);
      for (int k = 1; k <= peers(); ++k) {
        if (!m.await_recv(link(k).parts, peer(k), op)) return false;
        if (!exact::unpack_add({incoming(k, s), room}, sums)) return malformed(k);
      }
      const size_t bytes = exact::pack(sums, own_result(s), packing);
      for (int k = 1; k <= peers(); ++k) {
        if (!m.post_send(link(k).results, peer(k), result_id, own_result(s), bytes, op)) {
          return false;
        }
      }
    }
    return true;
  }

  bool take_results() {
    for (size_t s = 0; s < most; ++s) {
      for (int k = 1; k <= peers(); ++k) {
        if (s >= segments(part(k))) continue;
        if (!m.await_recv(link(k).results, peer(k), op)) return false;
        if (!exact::unpack({incoming_result(k, s), room}, segment(part(k), s))) return malformed(k);
      }
    }
    return true;
  }

  bool finish() {
    for (int k = 1; k <= peers(); ++k) {
      if (!m.await_send(link(k).opening, peer(k), op)) return false;
      for (size_t s = 0; s < segments(part(k)); ++s) {
        if (!m.await_send(link(k).parts, peer(k), op)) return false;
      }
      for (size_t s = 0; s < segments(mine); ++s) {
        if (!m.await_send(link(k).results, peer(k), op)) return false;
      }
    }
    return true;
  }

  GlooMember& m;
  const Team& team;
  const Operation& op;
  const std::span<int32_t> values;
  Channel& c;
  const uint64_t part_id;
  const uint64_t result_id;
  const Part mine;
  const size_t most;  // segments of the largest part
  const size_t room;  // bytes of a slot
  exact::Packing packing = exact::Packing::kFast;
};

bool GlooMember::exchange_packed(const Team& team, const Operation& op, std::byte* data) {
  return PackedReduction(*this, team, op, data).run();
}

}  // namespace muster::comm
