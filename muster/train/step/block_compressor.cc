#include "muster/train/step/block_compressor.h"

#include <atomic>
#include <cmath>
#include <cstring>

namespace muster::train {
namespace {

constexpr size_t kGrain = 16;  // blocks for a thread at a time

size_t largest_size(const exact::BlockLayout& layout, size_t blocks, const sync::BlockCode& code) {
  size_t largest = 0;
  for (size_t b = 0; b < blocks; ++b) {
    largest += sizeof(uint16_t) + code.largest_size(layout.blocks()[b].size);
  }
  return largest;
}

}  // namespace

BlockCompressor::BlockCompressor(const config::Job& job, const StrategyParts& parts)
    : parts_(parts),
      blocks_(parts.arena->layout().first_block(parts.arena->first_statistic())),
      statistics_(parts.arena->layout().block_elements() - parts.arena->statistics_begin()),
      code_(sync::make_block_code(job.sync)),
      messages_(static_cast<size_t>(job.sync.replicas),
                largest_size(parts.arena->layout(), blocks_, *code_) + statistics_ * sizeof(float),
                parts.auditor),
      encoded_(blocks_),
      from_(static_cast<size_t>(job.sync.replicas) * blocks_) {}

void BlockCompressor::pack(Replica& replica, std::vector<std::byte>& out) {
  const auto& layout = parts_.arena->layout();
  parts_.team->for_each(blocks_, kGrain, [&](int, size_t b) {
    encoded_[b].clear();
    code_->encode(exact::part(std::span(replica.error), layout.blocks()[b]), encoded_[b]);
  });
  for (const auto& block : encoded_) {
    const auto size = static_cast<uint16_t>(block.size());
    const auto bytes = std::as_bytes(std::span(&size, 1));
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  for (const auto& block : encoded_) out.insert(out.end(), block.begin(), block.end());
  const auto statistics = std::as_bytes(std::span(replica.statistics));
  out.insert(out.end(), statistics.begin(), statistics.end());
}

bool BlockCompressor::index(std::span<const std::byte> message,
                            std::span<std::span<const std::byte>> blocks) {
  const size_t sizes = blocks.size() * sizeof(uint16_t);
  if (message.size() < sizes + statistics_ * sizeof(float)) return false;
  auto rest = message.subspan(sizes);
  for (size_t b = 0; b < blocks.size(); ++b) {
    uint16_t size = 0;
    std::memcpy(&size, message.data() + b * sizeof(size), sizeof(size));
    if (rest.size() < size) return false;
    blocks[b] = rest.first(size);
    rest = rest.subspan(size);
  }
  return rest.size() == statistics_ * sizeof(float);
}

Result<bool> BlockCompressor::exchange(int64_t /*step*/, std::span<Replica> replicas,
                                       uint64_t common, const RoundExchange::Peers& peers,
                                       std::span<float> sum) {
  messages_.clear();
  for (const int number : peers.replicas) {
    Replica& replica = replicas[static_cast<size_t>(number)];
    auto& out = messages_.begin(number);
    if (replica.finite) pack(replica, out);
    peers.vitals.note_progress();
    messages_.end(replica.finite);
  }
  MUSTER_TRY(const bool finite, messages_.exchange(common, peers));
  if (!finite) return false;
  for (size_t r = 0; r < replicas.size(); ++r) {
    if (!index(messages_.of(r), std::span(from_).subspan(r * blocks_, blocks_))) {
      return ReplicaMessages::unreadable(r, peers);
    }
  }
  const auto& layout = parts_.arena->layout();
  std::atomic<bool> all_finite = true;
  std::atomic<size_t> bad = replicas.size();
  parts_.team->for_each(blocks_, kGrain, [&](int, size_t b) {
    const auto part = exact::part(sum, layout.blocks()[b]);
    std::ranges::fill(part, 0.0f);
    for (size_t r = 0; r < replicas.size(); ++r) {
      if (!code_->add(from_[r * blocks_ + b], part)) bad.store(r, std::memory_order_relaxed);
    }
    bool every = true;
    for (const float g : part) every &= std::isfinite(g);
    if (!every) all_finite.store(false, std::memory_order_relaxed);
  });
  if (bad < replicas.size()) return ReplicaMessages::unreadable(bad, peers);
  const auto statistics = sum.subspan(sum.size() - statistics_);
  std::ranges::fill(statistics, 0.0f);
  for (size_t r = 0; r < replicas.size(); ++r) {
    const auto from = messages_.of(r).last(statistics_ * sizeof(float));
    for (size_t i = 0; i < statistics_; ++i) {
      float change = 0;
      std::memcpy(&change, from.data() + i * sizeof(float), sizeof(float));
      statistics[i] += change;
    }
  }
  return all_finite.load(std::memory_order_relaxed);
}

}  // namespace muster::train
