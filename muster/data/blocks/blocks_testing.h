// Helpers for tests of data that is read by blocks: an index made on the spot, a store in memory
// that can fail, and a format whose samples say which ones they are.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/data/blocks/block_format.h"
#include "muster/data/blocks/block_index.h"
#include "muster/store/store.h"

namespace muster::data::testing {

// Blocks of these many samples, `sample_bytes` each, `per_object` blocks to an object (0: all).
inline BlockIndex make_index(const std::vector<uint32_t>& counts, uint64_t sample_bytes = 8,
                             size_t per_object = 0) {
  BlockIndex index;
  index.format = "numbers";
  uint64_t first = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (i == 0 || (per_object > 0 && i % per_object == 0)) {
      index.objects.push_back(
          {.name = "object-" + std::to_string(index.objects.size()), .size = 0, .version = "1"});
    }
    auto& object = index.objects.back();
    const uint64_t length = counts[i] * sample_bytes;
    index.blocks.push_back({.object = static_cast<uint32_t>(index.objects.size() - 1),
                            .offset = object.size,
                            .length = length,
                            .first = first,
                            .count = counts[i],
                            .hash = {}});
    object.size += length;
    first += counts[i];
  }
  return index;
}

}  // namespace muster::data::testing
