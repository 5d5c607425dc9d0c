#include "muster/train/step/commit.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace muster::train {

// Bytes are compared one by one, so their order does not matter, only that all machines use one:
// that of all machines that libtorch runs on.
static_assert(std::endian::native == std::endian::little);

CommitMessage::CommitMessage(size_t blocks, int lanes)
    : blocks_(blocks),
      lanes_(lanes),
      bytes_(blocks + kRecord * static_cast<size_t>(lanes) + sizeof(CommitFlags) + kAudit) {}

void CommitMessage::clear() { std::fill(bytes_.begin(), bytes_.end(), uint8_t{0}); }

void CommitMessage::set_lane(int lane, const LaneResult& result) {
  uint8_t* record = bytes_.data() + blocks_ + kRecord * static_cast<size_t>(lane);
  const auto culprit = static_cast<uint32_t>(result.not_finite + 1);
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  const auto damage = static_cast<uint32_t>(
      result.damaged >= 0 ? static_cast<uint64_t>(result.damaged) + 1
                          : std::min(kMost, result.samples == 0 ? 0 : result.replaced));
  std::memcpy(record, &result.loss, 8);
  std::memcpy(record + 8, &result.samples, 8);
  std::memcpy(record + 16, &culprit, 4);
  std::memcpy(record + 20, &damage, 4);
  std::memcpy(record + 24, &result.used, 8);
}

LaneResult CommitMessage::lane(int lane) const {
  const uint8_t* record = bytes_.data() + blocks_ + kRecord * static_cast<size_t>(lane);
  LaneResult result;
  uint32_t culprit = 0;
  uint32_t damage = 0;
  std::memcpy(&result.loss, record, 8);
  std::memcpy(&result.samples, record + 8, 8);
  std::memcpy(&culprit, record + 16, 4);
  std::memcpy(&damage, record + 20, 4);
  std::memcpy(&result.used, record + 24, 8);
  result.not_finite = static_cast<int64_t>(culprit) - 1;
  if (result.samples == 0) {
    result.damaged = static_cast<int64_t>(damage) - 1;
  } else {
    result.replaced = damage;
  }
  return result;
}

std::optional<int> CommitMessage::first_not_finite() const {
  for (int lane = 0; lane < lanes_; ++lane) {
    if (!this->lane(lane).finite()) return lane;
  }
  return std::nullopt;
}

std::vector<uint64_t> CommitMessage::damaged_blocks() const {
  std::vector<uint64_t> blocks;
  for (int lane = 0; lane < lanes_; ++lane) {
    const int64_t block = this->lane(lane).damaged;
    if (block >= 0) blocks.push_back(static_cast<uint64_t>(block));
  }
  std::ranges::sort(blocks);
  const auto repeated = std::ranges::unique(blocks);
  blocks.erase(repeated.begin(), repeated.end());
  return blocks;
}

CommitFlags CommitMessage::flags() const {
  CommitFlags flags;
  std::memcpy(&flags, audit() - sizeof(flags), sizeof(flags));
  return flags;
}

void CommitMessage::set_flags(const CommitFlags& flags) {
  std::memcpy(audit() - sizeof(flags), &flags, sizeof(flags));
}

void CommitMessage::set_state_hash(uint64_t hash) {
  const uint64_t complement = ~hash;
  std::memcpy(audit(), &hash, 8);
  std::memcpy(audit() + 8, &complement, 8);
}

bool CommitMessage::states_agree() const {
  uint64_t hash = 0;
  uint64_t complement = 0;
  std::memcpy(&hash, audit(), 8);
  std::memcpy(&complement, audit() + 8, 8);
  return hash == ~complement || (hash == 0 && complement == 0);  // the latter: nobody set one
}

}  // namespace muster::train
