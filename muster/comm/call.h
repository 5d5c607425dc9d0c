// How an operation is written down for peers to compare with their own.
#pragma once

#include <cstdint>

#include "muster/comm/group.h"

namespace muster::comm {

struct Call {
  static constexpr uint32_t kMagic = 0x4e45504f;
  uint32_t magic = kMagic;
  uint8_t kind = 0;
  uint8_t reduction = 0;
  uint16_t packed = 0;
  int32_t peer = 0;
  uint32_t element = 0;
  uint64_t number = 0;
  uint64_t count = 0;
};

inline Call call_of(const Operation& op) {
  return {.kind = static_cast<uint8_t>(op.kind),
          .reduction = static_cast<uint8_t>(op.reduction),
          .packed = static_cast<uint16_t>(op.packed ? 1 : 0),
          .peer = op.peer,
          .element = op.element,
          .number = op.number,
          .count = op.count};
}

inline Operation operation_of(const Call& call, uint32_t tag) {
  return {.kind = static_cast<OpKind>(call.kind),
          .reduction = static_cast<Reduction>(call.reduction),
          .tag = tag,
          .peer = call.peer,
          .number = call.number,
          .count = call.count,
          .element = call.element,
          .packed = call.packed != 0,
          .deadline = {}};
}

inline bool same_call(const Call& theirs, const Operation& op) {
  return theirs.magic == Call::kMagic && same_call(operation_of(theirs, op.tag), op);
}

}  // namespace muster::comm
