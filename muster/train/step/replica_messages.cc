#include "muster/train/step/replica_messages.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "muster/base/hash.h"

namespace muster::train {
namespace {

// Before each message. Little-endian.
struct Header {
  uint32_t replica;
  uint32_t finite;
  uint64_t size;  // of what follows
  uint64_t hash;  // of that, and of the rest of this
};

uint64_t hash_of(Header header, std::span<const std::byte> body) {
  header.hash = 0;
  return hash64(body.data(), body.size(), hash64(&header, sizeof(header)));
}

}  // namespace

ReplicaMessages::ReplicaMessages(size_t replicas, size_t largest, Auditor* auditor)
    : largest_(replicas * (sizeof(Header) + largest)), auditor_(auditor), messages_(replicas) {}

void ReplicaMessages::clear() { out_.clear(); }

std::vector<std::byte>& ReplicaMessages::begin(int replica) {
  begin_ = out_.size();
  out_.resize(begin_ + sizeof(Header));
  const Header header = {
      .replica = static_cast<uint32_t>(replica), .finite = 0, .size = 0, .hash = 0};
  std::memcpy(out_.data() + begin_, &header, sizeof(header));
  return out_;
}

void ReplicaMessages::end(bool finite) {
  Header header{};
  std::memcpy(&header, out_.data() + begin_, sizeof(header));
  const auto body = std::span(out_).subspan(begin_ + sizeof(Header));
  header.finite = finite ? 1 : 0;
  header.size = body.size();
  header.hash = hash_of(header, body);
  std::memcpy(out_.data() + begin_, &header, sizeof(header));
}

Result<bool> ReplicaMessages::exchange(uint64_t common, const RoundExchange::Peers& peers) {
  MUSTER_TRY(const auto notices, exchange_notices(common, peers));
  bool finite = std::ranges::all_of(notices, [](const Notice& n) { return n.finite != 0; });
  if (!finite) return false;
  MUSTER_RETURN_IF_ERROR(exchange_bytes(notices, peers));
  MUSTER_RETURN_IF_ERROR(unpack(notices, peers, finite));
  return finite;
}

Result<std::vector<ReplicaMessages::Notice>> ReplicaMessages::exchange_notices(
    uint64_t common, const RoundExchange::Peers& peers) {
  auto& group = peers.group;
  std::vector<Notice> notices(static_cast<size_t>(group.size()));
  notices[static_cast<size_t>(group.rank())] = {
      .size = out_.size(), .common = common, .finite = peers.finite ? 1u : 0u};
  {
    const WaitingForPeers waiting(peers.vitals);
    MUSTER_RETURN_IF_ERROR(group.allgather(std::span(notices), {.timeout = peers.timeout}));
  }
  for (const Notice& notice : notices) {
    if (notice.common != notices[0].common) return explain_difference(auditor_, peers);
    if (notice.size <= largest_) continue;
    group.abort("a worker's message at the end of a round is too long");
    return Error(ErrorKind::kInternal, "a message at the end of a round is too long");
  }
  return notices;
}

Status ReplicaMessages::exchange_bytes(std::span<const Notice> notices,
                                       const RoundExchange::Peers& peers) {
  auto& group = peers.group;
  const comm::OpOptions options = {.timeout = peers.timeout};
  const auto rank = static_cast<size_t>(group.rank());
  size_t total = 0;
  size_t largest = 0;
  begins_.clear();
  for (const Notice& notice : notices) {
    begins_.push_back(total);
    total += notice.size;
    largest = std::max<size_t>(largest, notice.size);
  }
  all_.resize(total);
  std::ranges::copy(out_, all_.begin() + static_cast<ptrdiff_t>(begins_[rank]));
  const WaitingForPeers waiting(peers.vitals);
  // In pieces, so that it is seen to progress on a slow link.
  constexpr size_t kPiece = 1 << 20;
  // The parts of an allgather have one size, and each goes to all others at the same time.
  // Broadcasts are made one after the other, by a tree: whoever is at its root sends so many times.
  const size_t others = notices.size() - 1;
  // A member without any is one of a site that does not lead, and an allgather would carry its part
  // from site to site as well.
  const bool all_send = std::ranges::none_of(notices, [](const Notice& n) { return n.size == 0; });
  const bool gathered =
      all_send && largest * others <= total * static_cast<size_t>(std::bit_width(others));
  for (size_t begin = 0; begin < largest; begin += kPiece) {
    const size_t size = std::min(kPiece, largest - begin);
    const auto piece = [&](size_t member) {
      const size_t end = std::min<size_t>(begin + size, notices[member].size);
      return begin < end ? std::span(all_).subspan(begins_[member] + begin, end - begin)
                         : std::span<std::byte>();
    };
    if (gathered) {
      parts_.resize(size * notices.size());
      std::ranges::copy(piece(rank), parts_.begin() + static_cast<ptrdiff_t>(rank * size));
      MUSTER_RETURN_IF_ERROR(group.allgather(std::span(parts_), options));
      for (size_t member = 0; member < notices.size(); ++member) {
        const auto to = piece(member);
        std::copy_n(parts_.begin() + static_cast<ptrdiff_t>(member * size), to.size(), to.begin());
      }
      peers.vitals.note_progress();
      continue;
    }
    for (size_t member = 0; member < notices.size(); ++member) {
      if (piece(member).empty()) continue;
      MUSTER_RETURN_IF_ERROR(group.broadcast(piece(member), static_cast<int>(member), options));
      peers.vitals.note_progress();
    }
  }
  return {};
}

Status ReplicaMessages::unpack(std::span<const Notice> notices, const RoundExchange::Peers& peers,
                               bool& finite) {
  std::vector<bool> there(messages_.size());
  for (size_t member = 0; member < notices.size(); ++member) {
    const auto from = std::span(all_).subspan(begins_[member], notices[member].size);
    if (unpack(from, there, finite)) continue;
    peers.group.abort("what " + peers.group.describe(static_cast<int>(member)) +
                      " sent at the end of a round is damaged");
    return Error(ErrorKind::kInternal, "a damaged message at the end of a round");
  }
  if (std::ranges::find(there, false) == there.end()) return {};
  peers.group.abort("a replica is nobody's");
  return Error(ErrorKind::kInternal, "a replica is nobody's");
}

bool ReplicaMessages::unpack(std::span<const std::byte> from, std::vector<bool>& there,
                             bool& finite) {
  while (!from.empty()) {
    Header header{};
    if (from.size() < sizeof(header)) return false;
    std::memcpy(&header, from.data(), sizeof(header));
    from = from.subspan(sizeof(header));
    if (header.replica >= there.size() || there[header.replica] || header.size > from.size()) {
      return false;
    }
    const auto body = from.first(header.size);
    from = from.subspan(header.size);
    if (hash_of(header, body) != header.hash) return false;
    there[header.replica] = true;
    messages_[header.replica] = body;
    if (header.finite == 0) finite = false;
  }
  return true;
}

Error ReplicaMessages::unreadable(size_t replica, const RoundExchange::Peers& peers) {
  const std::string what = "what replica " + std::to_string(replica) +
                           " sent at the end of a round cannot be read; do all workers have the "
                           "same version?";
  peers.group.abort(what);
  return Error(ErrorKind::kInternal, "{}", what);
}

}  // namespace muster::train
