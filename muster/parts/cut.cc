#include "muster/parts/cut.h"

#include <algorithm>

namespace muster::parts {
namespace {

constexpr uint64_t kLeast = 1024;
constexpr uint64_t kMostParts = 16384;

}  // namespace

uint64_t part_size(uint64_t samples, uint64_t batch) {
  const uint64_t least = std::max(kLeast, (samples + kMostParts - 1) / kMostParts);
  return (least + batch - 1) / batch * batch;
}

std::vector<uint64_t> cut(uint64_t samples, uint64_t batch, std::span<const uint64_t> blocks) {
  const uint64_t size = part_size(samples, batch);
  std::vector<uint64_t> borders = {0};
  while (samples - borders.back() > size) {
    uint64_t next = borders.back() + size;
    if (!blocks.empty()) {
      const auto block = std::ranges::lower_bound(blocks, next);
      next = block == blocks.end() ? samples : std::min(*block, samples);
    }
    if (next == samples) break;
    borders.push_back(next);
  }
  borders.push_back(samples);
  return borders;
}

}  // namespace muster::parts
