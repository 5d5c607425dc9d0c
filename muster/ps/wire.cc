#include "muster/ps/wire.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "muster/ps/bytes.h"

namespace muster::ps {
namespace {

constexpr uint32_t kMagic = 0x5350554d;  // "MUPS"
constexpr uint8_t kVersion = 4;

// Part of the format: never renumber.
enum class Kind : uint8_t {
  kForward = 1,
  kConfirm = 2,
  kAsk = 3,
  kCopy = 4,
  kRelease = 5,
  kPush = 6,
  kPushAnswer = 7,
  kRead = 8,
  kReadAnswer = 9,
  kWhole = 10,
  kWholeAnswer = 11,
  kOrder = 12,
  kOrderAnswer = 13,
};

struct Header {
  // Of all that follows: the hash of the rest of the header and the fields, seeded with that of
  // what the message carries.
  uint64_t checksum = 0;
  uint32_t magic = kMagic;
  uint8_t version = kVersion;
  Kind kind = Kind::kForward;
  uint8_t flag = 0;    // a bool or an enum of the kind
  uint8_t fields = 0;  // between the header and what it carries, of 8 bytes each
  uint32_t shard = 0;
  uint32_t table = 0;
  uint64_t epoch = 0;
};
static_assert(sizeof(Header) == 32);

Error damaged(std::string_view what) {
  return Error(ErrorKind::kIo, "a message between parameter servers is damaged: {}", what);
}

uint64_t hash_of(std::string_view bytes) { return hash64(bytes.data(), bytes.size()); }

uint64_t checksum_of(std::string_view head, uint64_t hash_of_carried) {
  const auto rest = head.substr(sizeof(Header::checksum));
  return hash64(rest.data(), rest.size(), hash_of_carried);
}

// ---- Writing.

class Writer {
 public:
  Writer(Kind kind, ShardNumber shard, uint64_t epoch, uint8_t flag = 0, uint32_t table = 0) {
    Header header;
    header.kind = kind;
    header.shard = shard;
    header.epoch = epoch;
    header.flag = flag;
    header.table = table;
    append(bytes_, header);
  }
  template <typename... Values>
  Writer& add(Values... values) {
    (append(bytes_, uint64_t{values}), ...);
    return *this;
  }
  Packet finish(Bytes carried = {}) {
    const uint64_t hash = hash_of(*carried);
    return finish(std::move(carried), hash);
  }
  Packet finish(Bytes carried, uint64_t hash_of_carried) {
    bytes_[offsetof(Header, fields)] =
        static_cast<char>((bytes_.size() - sizeof(Header)) / sizeof(uint64_t));
    const uint64_t checksum = checksum_of(bytes_, hash_of_carried);
    std::memcpy(bytes_.data(), &checksum, sizeof(checksum));
    return {std::move(bytes_), std::move(carried)};
  }

 private:
  std::string bytes_;
};

Packet encode_one(const ShardMessage& message) {
  const auto begin = [&](Kind kind, uint8_t flag = 0) {
    return Writer(kind, message.shard, message.epoch, flag);
  };
  if (const auto* forward = std::get_if<Forward>(&message.what)) {
    const Push& push = forward->push;
    return begin(Kind::kForward)
        .add(forward->question, forward->place, push.client, push.number)
        .finish(push.bytes, push.hash);
  }
  if (const auto* confirm = std::get_if<Confirm>(&message.what)) {
    return begin(Kind::kConfirm).add(confirm->question, confirm->place).finish();
  }
  if (const auto* ask = std::get_if<Ask>(&message.what)) {
    return begin(Kind::kAsk, ask->complete ? 1 : 0)
        .add(ask->question, ask->place, ask->chain)
        .finish();
  }
  if (const auto* copy = std::get_if<Copy>(&message.what)) {
    return begin(Kind::kCopy, copy->state ? 1 : 0).add(copy->question).finish(copy->state);
  }
  return begin(Kind::kRelease).finish();
}

Packet encode_one(const PushRequest& request) {
  const Push& push = request.push;
  return Writer(Kind::kPush, request.shard, request.epoch)
      .add(push.client, push.number)
      .finish(push.bytes, push.hash);
}

Packet encode_one(const PushAnswer& answer) {
  return Writer(Kind::kPushAnswer, answer.shard, answer.epoch, static_cast<uint8_t>(answer.verdict))
      .add(answer.client, answer.number)
      .finish(answer.reason.empty() ? Bytes() : Bytes(answer.reason));
}

Packet encode_one(const ReadRequest& request) {
  return Writer(Kind::kRead, request.shard, request.epoch, request.exactly ? 1 : 0, request.table)
      .add(request.request, static_cast<uint64_t>(request.clock))
      .finish(Bytes::filled<uint64_t>(request.keys.size(),
                                      [&](uint64_t* to) { std::ranges::copy(request.keys, to); }));
}

Packet encode_one(const ReadAnswer& answer) {
  return Writer(Kind::kReadAnswer, answer.shard, answer.epoch, static_cast<uint8_t>(answer.served))
      .add(answer.request, static_cast<uint64_t>(answer.clock))
      .finish(answer.weights);
}

Packet encode_one(const WholeRequest& request) {
  return Writer(Kind::kWhole, request.shard, request.epoch, request.contents ? 1 : 0)
      .add(request.request, request.era, static_cast<uint64_t>(request.clock))
      .finish();
}

Packet encode_one(const WholeAnswer& answer) {
  return Writer(Kind::kWholeAnswer, answer.shard, answer.epoch, static_cast<uint8_t>(answer.served))
      .add(answer.request, static_cast<uint64_t>(answer.clock), answer.era, answer.hash.low,
           answer.hash.high)
      .finish(answer.contents);
}

Packet encode_one(const OrderRequest& request) {
  return Writer(Kind::kOrder, request.shard, request.epoch, request.results ? 1 : 0)
      .add(request.request, request.worker, static_cast<uint64_t>(request.from))
      .finish();
}

Packet encode_one(const OrderAnswer& answer) {
  return Writer(Kind::kOrderAnswer, answer.shard, answer.epoch, static_cast<uint8_t>(answer.served))
      .add(answer.request, static_cast<uint64_t>(answer.clock))
      .finish(Bytes(encode_view(answer.view)));
}

// ---- Reading.

bool carries_something(Kind kind) {
  switch (kind) {
    case Kind::kConfirm:
    case Kind::kAsk:
    case Kind::kRelease:
    case Kind::kWhole:
    case Kind::kOrder:
      return false;
    default:
      return true;
  }
}

// Exactly these.
template <typename... Values>
bool take_each(std::string_view fields, Values&... values) {
  return (take(fields, values) && ...) && fields.empty();
}

bool take_served(const Header& header, Served& served) {
  served = static_cast<Served>(header.flag);
  return served <= Served::kTooLarge;
}

// None: its fields, or what it carries, are not those of its kind.
std::optional<WireMessage> decode_shard(const Header& header, std::string_view fields,
                                        const Bytes& carried, uint64_t hash_of_carried) {
  ShardMessage message{header.shard, header.epoch, Release{}};
  switch (header.kind) {
    case Kind::kForward: {
      Forward what;
      uint64_t client = 0;
      uint64_t number = 0;
      if (!take_each(fields, what.question, what.place, client, number)) return {};
      what.push = {client, number, carried, hash_of_carried};
      message.what = std::move(what);
      break;
    }
    case Kind::kConfirm: {
      Confirm what;
      if (!take_each(fields, what.question, what.place)) return {};
      message.what = what;
      break;
    }
    case Kind::kAsk: {
      Ask what;
      if (!take_each(fields, what.question, what.place, what.chain)) return {};
      what.complete = header.flag != 0;
      message.what = what;
      break;
    }
    case Kind::kCopy: {
      Copy what;
      if (!take_each(fields, what.question)) return {};
      if (header.flag == 0 && !carried->empty()) return {};
      if (header.flag != 0) what.state = carried;
      message.what = std::move(what);
      break;
    }
    default:
      if (!fields.empty()) return {};
      break;
  }
  return message;
}

std::optional<WireMessage> decode_client(const Header& header, std::string_view fields,
                                         const Bytes& carried, uint64_t hash_of_carried) {
  switch (header.kind) {
    case Kind::kPush: {
      uint64_t client = 0;
      uint64_t number = 0;
      if (!take_each(fields, client, number)) return {};
      return PushRequest{header.shard, header.epoch, {client, number, carried, hash_of_carried}};
    }
    case Kind::kPushAnswer: {
      PushAnswer answer;
      answer.shard = header.shard;
      answer.epoch = header.epoch;
      if (header.flag > static_cast<uint8_t>(PushVerdict::kMalformed)) return {};
      answer.verdict = static_cast<PushVerdict>(header.flag);
      if (!take_each(fields, answer.client, answer.number)) return {};
      answer.reason = *carried;
      return answer;
    }
    case Kind::kRead: {
      ReadRequest request;
      request.shard = header.shard;
      request.epoch = header.epoch;
      request.table = header.table;
      request.exactly = header.flag != 0;
      if (!take_each(fields, request.request, request.clock)) return {};
      if (carried->size() % sizeof(uint64_t) != 0) return {};
      request.keys.resize(carried->size() / sizeof(uint64_t));
      carried->copy(reinterpret_cast<char*>(request.keys.data()), carried->size());
      return request;
    }
    case Kind::kWhole: {
      WholeRequest request;
      request.shard = header.shard;
      request.epoch = header.epoch;
      request.contents = header.flag != 0;
      if (!take_each(fields, request.request, request.era, request.clock)) return {};
      return request;
    }
    case Kind::kWholeAnswer: {
      WholeAnswer answer;
      answer.shard = header.shard;
      answer.epoch = header.epoch;
      if (!take_served(header, answer.served)) return {};
      if (!take_each(fields, answer.request, answer.clock, answer.era, answer.hash.low,
                     answer.hash.high)) {
        return {};
      }
      answer.contents = carried;
      return answer;
    }
    case Kind::kOrder: {
      OrderRequest request;
      request.shard = header.shard;
      request.epoch = header.epoch;
      request.results = header.flag != 0;
      if (!take_each(fields, request.request, request.worker, request.from)) return {};
      return request;
    }
    case Kind::kOrderAnswer: {
      OrderAnswer answer;
      answer.shard = header.shard;
      answer.epoch = header.epoch;
      if (!take_served(header, answer.served)) return {};
      if (!take_each(fields, answer.request, answer.clock)) return {};
      auto view = decode_view(*carried);
      if (!view.ok()) return {};
      answer.view = *std::move(view);
      return answer;
    }
    default: {
      ReadAnswer answer;
      answer.shard = header.shard;
      answer.epoch = header.epoch;
      if (!take_served(header, answer.served)) return {};
      if (!take_each(fields, answer.request, answer.clock)) return {};
      if (carried->size() % sizeof(float) != 0) return {};
      answer.weights = carried;
      return answer;
    }
  }
}

}  // namespace

bool put_rows(const Bytes& weights, std::span<const uint32_t> places, size_t width, float* to) {
  const size_t row_bytes = width * sizeof(float);
  if (weights->size() != places.size() * row_bytes) return false;
  const char* from = weights->data();
  for (const uint32_t place : places) {
    std::memcpy(to + place * width, from, row_bytes);
    from += row_bytes;
  }
  return true;
}

Packet encode(const WireMessage& message) {
  return std::visit([](const auto& one) { return encode_one(one); }, message);
}

Result<WireMessage> decode(const Bytes& bytes) {
  std::string_view rest = *bytes;
  Header header;
  if (!take(rest, header)) return damaged("it is shorter than its header");
  if (header.magic != kMagic) return damaged("it begins with something else");
  if (header.version != kVersion) {
    return Error(ErrorKind::kIo,
                 "a parameter server sends messages of version {}, and this one understands {}: "
                 "use the same Muster on all machines",
                 header.version, kVersion);
  }
  const size_t fields = header.fields * sizeof(uint64_t);
  if (rest.size() < fields) return damaged("it is shorter than its fields");
  const Bytes carried = bytes.part(rest.substr(fields));
  const uint64_t hash = hash_of(*carried);
  if (header.checksum != checksum_of(bytes->substr(0, sizeof(header) + fields), hash)) {
    return damaged("its checksum is wrong");
  }
  if (header.kind < Kind::kForward || header.kind > Kind::kOrderAnswer) {
    return damaged("it is of no kind that there is");
  }
  std::optional<WireMessage> message;
  if (carries_something(header.kind) || carried->empty()) {
    const auto of_kind = header.kind <= Kind::kRelease ? decode_shard : decode_client;
    message = of_kind(header, rest.substr(0, fields), carried, hash);
  }
  if (!message) return damaged("its length is not that of its contents");
  return *std::move(message);
}

}  // namespace muster::ps
