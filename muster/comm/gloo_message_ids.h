// Inside the Gloo backend: the ids by which a message finds its receive. Gloo calls them slots.
#pragma once

#include <cstddef>
#include <cstdint>

#include "muster/comm/group.h"

namespace muster::comm {

// Large data goes in pieces of this size, so that one can be worked on while another travels; it is
// what fits the second-level cache a few times.
inline constexpr size_t kSegmentBytes = 512 << 10;

enum class MessageClass : uint64_t {
  kOpening = 1,
  kParts = 2,
  kResults = 3,
  kLetter = 4,
  kBody = 5
};

inline uint64_t opening_id(MessageClass c, uint32_t tag) {
  return static_cast<uint64_t>(c) << 56 | tag;
}

// A message longer than its receive would end the process (gloo_wire.h), so data only meets if both
// sides made the same call: the id is a digest of it. Send and recv are two calls; they name one.
inline uint64_t data_id(MessageClass c, const Operation& op) {
  const bool transfer = op.kind == OpKind::kSend || op.kind == OpKind::kRecv;
  uint64_t h = 0x9e3779b97f4a7c15;
  const auto mix = [&h](uint64_t v) {
    h = (h ^ v) * 0xbf58476d1ce4e5b9;
    h ^= h >> 29;
  };
  mix(op.tag);
  mix(static_cast<uint64_t>(transfer ? OpKind::kSend : op.kind) << 8 |
      static_cast<uint64_t>(op.reduction) | (op.packed ? uint64_t{1} << 16 : 0));
  mix(transfer ? 0 : static_cast<uint64_t>(op.peer));
  mix(op.number);
  mix(op.count);
  mix(op.element);
  return static_cast<uint64_t>(c) << 56 | (h >> 8);
}

}  // namespace muster::comm
