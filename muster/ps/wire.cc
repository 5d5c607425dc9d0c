#include "muster/ps/wire.h"

#include <cstring>
#include <utility>

#include "muster/ps/bytes.h"

namespace muster::ps {
namespace {

constexpr uint32_t kMagic = 0x5350554d;  // "MUPS"
constexpr uint8_t kVersion = 1;

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
  uint64_t checksum = 0;  // of all that follows
  uint32_t magic = kMagic;
  uint8_t version = kVersion;
  Kind kind = Kind::kForward;
  uint8_t flag = 0;  // a bool or an enum of the kind
  uint8_t unused = 0;
  uint32_t shard = 0;
  uint32_t table = 0;
  uint64_t epoch = 0;
};
static_assert(sizeof(Header) == 32);

Error damaged(std::string_view what) {
  return Error(ErrorKind::kIo, "a message between parameter servers is damaged: {}", what);
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
  Writer& add_bytes(const void* data, size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
    return *this;
  }
  std::string finish() {
    const uint64_t checksum = checksum_of(bytes_);
    std::memcpy(bytes_.data(), &checksum, sizeof(checksum));
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

std::string encode_one(const ShardMessage& message) {
  const auto begin = [&](Kind kind, uint8_t flag = 0) {
    return Writer(kind, message.shard, message.epoch, flag);
  };
  if (const auto* forward = std::get_if<Forward>(&message.what)) {
    const Push& push = forward->push;
    return begin(Kind::kForward)
        .add(forward->question, forward->place, push.client, push.number)
        .add_bytes(push.bytes->data(), push.bytes->size())
        .finish();
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
    Writer writer = begin(Kind::kCopy, copy->state ? 1 : 0);
    writer.add(copy->question);
    if (copy->state) writer.add_bytes(copy->state->data(), copy->state->size());
    return writer.finish();
  }
  return begin(Kind::kRelease).finish();
}

std::string encode_one(const PushRequest& request) {
  const Push& push = request.push;
  return Writer(Kind::kPush, request.shard, request.epoch)
      .add(push.client, push.number)
      .add_bytes(push.bytes->data(), push.bytes->size())
      .finish();
}

std::string encode_one(const PushAnswer& answer) {
  return Writer(Kind::kPushAnswer, answer.shard, answer.epoch, static_cast<uint8_t>(answer.verdict))
      .add(answer.client, answer.number)
      .add_bytes(answer.reason.data(), answer.reason.size())
      .finish();
}

std::string encode_one(const ReadRequest& request) {
  return Writer(Kind::kRead, request.shard, request.epoch, request.exactly ? 1 : 0, request.table)
      .add(request.request, static_cast<uint64_t>(request.clock))
      .add_bytes(request.keys.data(), request.keys.size() * sizeof(uint64_t))
      .finish();
}

std::string encode_one(const ReadAnswer& answer) {
  return Writer(Kind::kReadAnswer, answer.shard, answer.epoch, static_cast<uint8_t>(answer.served))
      .add(answer.request, static_cast<uint64_t>(answer.clock))
      .add_bytes(answer.weights.data(), answer.weights.size() * sizeof(float))
      .finish();
}

std::string encode_one(const WholeRequest& request) {
  return Writer(Kind::kWhole, request.shard, request.epoch, request.contents ? 1 : 0)
      .add(request.request, static_cast<uint64_t>(request.clock))
      .finish();
}

std::string encode_one(const WholeAnswer& answer) {
  return Writer(Kind::kWholeAnswer, answer.shard, answer.epoch, static_cast<uint8_t>(answer.served))
      .add(answer.request, static_cast<uint64_t>(answer.clock), answer.hash.low, answer.hash.high)
      .add_bytes(answer.contents.data(), answer.contents.size())
      .finish();
}

std::string encode_one(const OrderRequest& request) {
  return Writer(Kind::kOrder, request.shard, request.epoch, request.results ? 1 : 0)
      .add(request.request, request.worker, static_cast<uint64_t>(request.from))
      .finish();
}

std::string encode_one(const OrderAnswer& answer) {
  const auto view = encode_view(answer.view);
  return Writer(Kind::kOrderAnswer, answer.shard, answer.epoch, static_cast<uint8_t>(answer.served))
      .add(answer.request, static_cast<uint64_t>(answer.clock))
      .add_bytes(view.data(), view.size())
      .finish();
}

// ---- Reading.

template <typename... Values>
bool take_each(std::string_view& from, Values&... values) {
  return (take(from, values) && ...);
}

Bytes shared(std::string_view bytes) { return std::make_shared<const std::string>(bytes); }

// False: there is a part of a value at the end.
template <typename T>
bool take_rest(std::string_view& from, std::vector<T>& values) {
  if (from.size() % sizeof(T) != 0) return false;
  values.resize(from.size() / sizeof(T));
  if (!from.empty()) std::memcpy(values.data(), from.data(), from.size());
  from = {};
  return true;
}

bool take_served(const Header& header, Served& served) {
  served = static_cast<Served>(header.flag);
  return served <= Served::kLost;
}

std::optional<WireMessage> decode_shard(const Header& header, std::string_view rest) {
  ShardMessage message{header.shard, header.epoch, Release{}};
  switch (header.kind) {
    case Kind::kForward: {
      Forward what;
      if (!take_each(rest, what.question, what.place, what.push.client, what.push.number))
        return {};
      what.push.bytes = shared(std::exchange(rest, {}));
      message.what = std::move(what);
      break;
    }
    case Kind::kConfirm: {
      Confirm what;
      if (!take_each(rest, what.question, what.place)) return {};
      message.what = what;
      break;
    }
    case Kind::kAsk: {
      Ask what;
      if (!take_each(rest, what.question, what.place, what.chain)) return {};
      what.complete = header.flag != 0;
      message.what = what;
      break;
    }
    case Kind::kCopy: {
      Copy what;
      if (!take_each(rest, what.question)) return {};
      if (header.flag != 0) what.state = shared(std::exchange(rest, {}));
      message.what = std::move(what);
      break;
    }
    default:
      break;
  }
  if (!rest.empty()) return {};
  return message;
}

std::optional<WireMessage> decode_client(const Header& header, std::string_view rest) {
  switch (header.kind) {
    case Kind::kPush: {
      PushRequest request{header.shard, header.epoch, {}};
      if (!take_each(rest, request.push.client, request.push.number)) return {};
      request.push.bytes = shared(rest);
      return request;
    }
    case Kind::kPushAnswer: {
      PushAnswer answer;
      answer.shard = header.shard;
      answer.epoch = header.epoch;
      if (header.flag > static_cast<uint8_t>(PushVerdict::kMalformed)) return {};
      answer.verdict = static_cast<PushVerdict>(header.flag);
      if (!take_each(rest, answer.client, answer.number)) return {};
      answer.reason = rest;
      return answer;
    }
    case Kind::kRead: {
      ReadRequest request;
      request.shard = header.shard;
      request.epoch = header.epoch;
      request.table = header.table;
      request.exactly = header.flag != 0;
      if (!take_each(rest, request.request, request.clock)) return {};
      if (!take_rest(rest, request.keys)) return {};
      return request;
    }
    case Kind::kWhole: {
      WholeRequest request;
      request.shard = header.shard;
      request.epoch = header.epoch;
      request.contents = header.flag != 0;
      if (!take_each(rest, request.request, request.clock) || !rest.empty()) return {};
      return request;
    }
    case Kind::kWholeAnswer: {
      WholeAnswer answer;
      answer.shard = header.shard;
      answer.epoch = header.epoch;
      if (!take_served(header, answer.served)) return {};
      if (!take_each(rest, answer.request, answer.clock, answer.hash.low, answer.hash.high)) {
        return {};
      }
      answer.contents = rest;
      return answer;
    }
    case Kind::kOrder: {
      OrderRequest request;
      request.shard = header.shard;
      request.epoch = header.epoch;
      request.results = header.flag != 0;
      if (!take_each(rest, request.request, request.worker, request.from) || !rest.empty()) {
        return {};
      }
      return request;
    }
    case Kind::kOrderAnswer: {
      OrderAnswer answer;
      answer.shard = header.shard;
      answer.epoch = header.epoch;
      if (!take_served(header, answer.served)) return {};
      if (!take_each(rest, answer.request, answer.clock)) return {};
      auto view = decode_view(rest);
      if (!view.ok()) return {};
      answer.view = *std::move(view);
      return answer;
    }
    default: {
      ReadAnswer answer;
      answer.shard = header.shard;
      answer.epoch = header.epoch;
      if (!take_served(header, answer.served)) return {};
      if (!take_each(rest, answer.request, answer.clock)) return {};
      if (!take_rest(rest, answer.weights)) return {};
      return answer;
    }
  }
}

}  // namespace

std::string encode(const WireMessage& message) {
  return std::visit([](const auto& one) { return encode_one(one); }, message);
}

Result<WireMessage> decode(std::string_view bytes) {
  std::string_view rest = bytes;
  Header header;
  if (!take(rest, header)) return damaged("it is shorter than its header");
  if (header.magic != kMagic) return damaged("it begins with something else");
  if (header.version != kVersion) {
    return Error(ErrorKind::kIo,
                 "a parameter server sends messages of version {}, and this one understands {}: "
                 "use the same Muster on all machines",
                 header.version, kVersion);
  }
  if (header.checksum != checksum_of(bytes)) return damaged("its checksum is wrong");
  if (header.kind < Kind::kForward || header.kind > Kind::kOrderAnswer) {
    return damaged("it is of no kind that there is");
  }
  auto message =
      header.kind <= Kind::kRelease ? decode_shard(header, rest) : decode_client(header, rest);
  if (!message) return damaged("its length is not that of its contents");
  return *std::move(message);
}

}  // namespace muster::ps
