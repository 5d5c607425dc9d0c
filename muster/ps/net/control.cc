#include "muster/ps/net/control.h"

#include <random>
#include <type_traits>
#include <utility>

#include "muster/ps/bytes.h"

namespace muster::ps {
namespace {

constexpr uint32_t kMagic = 0x4350554d;  // "MUPC"
constexpr uint32_t kVersion = 4;  // since then there are gaps between the messages of a batch
constexpr uint64_t kMostElements = 1 << 20;  // of a list

// ---- Both ways: fields() names the fields of a struct, and Out and In go through them.

struct Out {
  template <typename T>
  void operator()(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      append(bytes, value);
    } else {
      fields(*this, value);
    }
  }
  void operator()(const std::string& text) {
    append(bytes, uint64_t{text.size()});
    bytes += text;
  }
  void operator()(const Duration& value) { append(bytes, int64_t{value.count()}); }
  template <typename T>
  void operator()(const std::vector<T>& values) {
    append(bytes, uint64_t{values.size()});
    for (const auto& value : values) (*this)(value);
  }
  std::string bytes;
};

struct In {
  template <typename T>
  void operator()(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      uint8_t byte = 0;
      (*this)(byte);
      value = byte != 0;
    } else if constexpr (std::is_arithmetic_v<T>) {
      ok = ok && take(bytes, value);
    } else if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> number = 0;
      (*this)(number);
      ok = ok && number <= static_cast<std::underlying_type_t<T>>(last_of(T{}));
      if (ok) value = static_cast<T>(number);
    } else {
      fields(*this, value);
    }
  }
  void operator()(std::string& text) {
    uint64_t size = 0;
    (*this)(size);
    ok = ok && size <= bytes.size();
    if (!ok) return;
    text = bytes.substr(0, size);
    bytes.remove_prefix(size);
  }
  void operator()(Duration& value) {
    int64_t count = 0;
    (*this)(count);
    value = Duration(count);
  }
  template <typename T>
  void operator()(std::vector<T>& values) {
    uint64_t size = 0;
    (*this)(size);
    ok = ok && size <= kMostElements;
    for (uint64_t i = 0; ok && i < size; ++i) (*this)(values.emplace_back());
  }

  static HeartbeatReply::Standing last_of(HeartbeatReply::Standing) {
    return HeartbeatReply::Standing::kRemoved;
  }
  static ServerStatus::Standing last_of(ServerStatus::Standing) {
    return ServerStatus::Standing::kWaiting;
  }
  static InitialWeights last_of(InitialWeights) { return InitialWeights::kUniform; }
  static RowRule last_of(RowRule) { return RowRule::kFtrl; }

  std::string_view bytes;
  bool ok = true;
};

// clang-format off
#define MUSTER_FIELDS(Type, ...)                                           \
  template <typename Archive, typename T>                                  \
    requires std::is_same_v<std::remove_const_t<T>, Type>                  \
  void fields(Archive& archive, T& of) { each(archive, __VA_ARGS__); }
// clang-format on

template <typename Archive, typename... Fields>
void each(Archive& archive, Fields&... all) {
  (archive(all), ...);
}

MUSTER_FIELDS(ServerKey, of.id, of.incarnation)
MUSTER_FIELDS(ServerEntry, of.key, of.ready, of.address, of.process, of.host)
MUSTER_FIELDS(ServerPlace, of.id, of.host)
MUSTER_FIELDS(ServerMap, of.epoch, of.servers, of.away)
MUSTER_FIELDS(RowOptimizer, of.rule, of.lr, of.eps, of.beta1, of.beta2, of.beta, of.l1, of.l2)
MUSTER_FIELDS(Admission, of.sights, of.probability)
MUSTER_FIELDS(Eviction, of.age, of.most, of.every)
MUSTER_FIELDS(TableOptions, of.id, of.name, of.width, of.initial, of.scale, of.seed, of.optimizer,
              of.admission, of.eviction, of.versions)
MUSTER_FIELDS(Unreachable, of.peer, of.lasted)
MUSTER_FIELDS(Heartbeat, of.key, of.entered, of.has_all, of.complete, of.address, of.process,
              of.host, of.rows, of.unreachable)
MUSTER_FIELDS(HeartbeatReply, of.standing, of.lease, of.maps, of.reason)
MUSTER_FIELDS(ServerStatus, of.key, of.standing, of.host, of.address, of.process, of.entered,
              of.rows, of.heard_ago, of.unreachable, of.reason)
MUSTER_FIELDS(ServersStatus, of.epoch, of.first, of.copies, of.servers)
MUSTER_FIELDS(Hello, of.server, of.key)
MUSTER_FIELDS(TablesSetup, of.shards, of.copies, of.tables)
MUSTER_FIELDS(Beat, of.heartbeat, of.asked)
MUSTER_FIELDS(BeatAnswer, of.reply, of.asked)
MUSTER_FIELDS(NewMap, of.map)
template <typename Archive>
void fields(Archive& /*archive*/, const AskStatus& /*of*/) {}
#undef MUSTER_FIELDS

struct Header {
  uint64_t checksum = 0;  // of all that follows
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  uint16_t kind = 0;  // the place in ControlMessage: part of the format, never change the order
};
static_assert(sizeof(Header) == 16);

Error damaged(std::string_view what) {
  return Error(ErrorKind::kIo, "a message of the registry of parameter servers is damaged: {}",
               what);
}

template <size_t kKind = 0>
ControlMessage empty(size_t kind) {
  if constexpr (kKind + 1 < std::variant_size_v<ControlMessage>) {
    if (kind != kKind) return empty<kKind + 1>(kind);
  }
  return ControlMessage(std::in_place_index<kKind>);
}

}  // namespace

uint64_t draw_incarnation() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

std::string encode_control(const ControlMessage& message) {
  Out out;
  Header header;
  header.kind = static_cast<uint16_t>(message.index());
  append(out.bytes, header);
  std::visit([&](const auto& one) { out(one); }, message);
  const uint64_t checksum = checksum_of(out.bytes);
  out.bytes.replace(0, sizeof(checksum), reinterpret_cast<const char*>(&checksum),
                    sizeof(checksum));
  return std::move(out.bytes);
}

Result<ControlMessage> decode_control(std::string_view bytes) {
  In in{bytes, true};
  Header header;
  if (!take(in.bytes, header)) return damaged("it is shorter than its header");
  if (header.magic != kMagic) return damaged("it begins with something else");
  if (header.version != kVersion) {
    return Error(ErrorKind::kIo,
                 "it is of version {}, and this program understands {}: use the same Muster on all "
                 "machines",
                 header.version, kVersion);
  }
  if (header.checksum != checksum_of(bytes)) return damaged("its checksum is wrong");
  if (header.kind >= std::variant_size_v<ControlMessage>) {
    return damaged("it is of no kind that there is");
  }
  ControlMessage message = empty(header.kind);
  std::visit([&](auto& one) { in(one); }, message);
  if (!in.ok || !in.bytes.empty()) return damaged("its length is not that of its contents");
  return message;
}

Status check_same(const TablesSetup& before, const TablesSetup& now, const std::string& registry) {
  if (encode_control(before) == encode_control(now)) return {};
  return Error(ErrorKind::kRefused,
               "the registry of parameter servers at {} is that of another job: its tables are "
               "others than before (tables, seed); start this process again to take part in that "
               "job",
               registry);
}

Status check_shards(const TablesSetup& setup, size_t saved) {
  if (saved == setup.shards) return {};
  return Error(ErrorKind::kCheckpoint,
               "rows were saved in {} shards, and the job has {}: set tables.shards as it was",
               saved, setup.shards);
}

Status check(const TablesSetup& setup) {
  if (setup.shards == 0 || setup.shards > 1 << 20) {
    return Error(ErrorKind::kJob, "tables.shards must be from 1 to 1048576, not {}", setup.shards);
  }
  if (setup.copies != 1 && setup.copies != 2) {
    return Error(ErrorKind::kJob, "tables.copies must be 1 or 2, not {}", setup.copies);
  }
  if (setup.tables.empty()) return Error(ErrorKind::kJob, "there is no table to serve");
  for (size_t i = 0; i < setup.tables.size(); ++i) {
    if (setup.tables[i].id != i) {
      return Error(ErrorKind::kInternal, "table {} has the id {}", i, setup.tables[i].id);
    }
    MUSTER_RETURN_IF_ERROR(check(setup.tables[i]));
  }
  return {};
}

}  // namespace muster::ps
