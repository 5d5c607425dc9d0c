// Messages of parameter servers as bytes: between two servers, and between a client and a server.
//
// A message is a header of 32 bytes, some 8-byte fields that its kind has, and what it carries: a
// push, a copy of a shard, keys, or weights. The checksum covers everything behind it and the rest
// of the header, so what was damaged on its way is refused, also where TCP did not notice.
//
// What it carries is not copied: an encoded message shares it with the message, and a decoded one
// with the bytes that have come.
//
// Who sent it is not in the message: a connection begins with that.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/ps/shard_copy.h"
#include "muster/ps/shared_bytes.h"
#include "muster/ps/task_order.h"

namespace muster::ps {

struct PushRequest {
  ShardNumber shard = 0;
  uint64_t epoch = 0;
  Push push;
};

// The weights of these rows, from one shard.
struct ReadRequest {
  ShardNumber shard = 0;
  uint64_t epoch = 0;
  uint64_t request = 0;  // drawn by the client, to know the answer
  uint32_t table = 0;
  // Answered when the shard's clock (TableData::clock) is there, and not before.
  int64_t clock = 0;
  bool exactly = false;  // as rows were then, if the shard knows (TableData::knows); else as now
  std::vector<uint64_t> keys;
};

enum class Served : uint8_t {
  kNo,  // look for a newer map
  kYes,
  kLost,      // no server has the shard any more
  kTooLarge,  // for one message
};

struct ReadAnswer {
  ShardNumber shard = 0;
  uint64_t epoch = 0;  // the server's
  uint64_t request = 0;
  Served served = Served::kNo;
  int64_t clock = 0;  // of the shard: what was read is as of then
  Bytes weights;      // floats, of one row after the other
};

// All of a shard, for those who compare runs, and for checkpoints.
struct WholeRequest {
  ShardNumber shard = 0;
  uint64_t epoch = 0;
  uint64_t request = 0;
  uint64_t era = 0;       // of the clock: a shard of a later era answers at once, with that
  int64_t clock = 0;      // as ReadRequest's
  bool contents = false;  // else its hash is enough
};

// The order of tasks (task_order.h), as one worker sees it.
struct OrderRequest {
  ShardNumber shard = 0;
  uint64_t epoch = 0;
  uint64_t request = 0;
  uint64_t worker = 0;
  int64_t from = 0;      // the first place of interest
  bool results = false;  // of the tasks of the round
};

struct OrderAnswer {
  ShardNumber shard = 0;
  uint64_t epoch = 0;
  uint64_t request = 0;
  Served served = Served::kNo;
  int64_t clock = 0;
  OrderView view;
};

struct WholeAnswer {
  ShardNumber shard = 0;
  uint64_t epoch = 0;
  uint64_t request = 0;
  Served served = Served::kNo;
  int64_t clock = 0;
  uint64_t era = 0;  // of the shard, as `clock` is
  Hash128 hash;      // of the rows (TableData::hash); or
  Bytes contents;    // TableData::save_rows, which has it
};

using WireMessage = std::variant<ShardMessage, PushRequest, PushAnswer, ReadRequest, ReadAnswer,
                                 WholeRequest, WholeAnswer, OrderRequest, OrderAnswer>;

// The rows of a ReadAnswer to where they are wanted, `width` floats each. False: it has another
// number of them.
bool put_rows(const Bytes& weights, std::span<const uint32_t> places, size_t width, float* to);

Packet encode(const WireMessage& message);
// An error: it is damaged, or of another version.
Result<WireMessage> decode(const Bytes& bytes);

}  // namespace muster::ps
