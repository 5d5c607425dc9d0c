// Memory for what every step streams through: weights, optimizer state, sums.
#pragma once

#include <cstddef>
#include <memory>

namespace muster {

struct LargeMemoryFree {
  void operator()(std::byte* memory) const;
};
using LargeMemory = std::unique_ptr<std::byte, LargeMemoryFree>;

// Zeros, in pages that have been touched: the first step pays for no page faults. Aligned to 64
// bytes at least. From kHugePage on the kernel is asked for huge pages: the rows of a large matrix
// lie in a small page each, and a pass across them misses the TLB at every one. A kernel that has
// none to give gives small ones. Ends the process when there is no memory.
inline constexpr size_t kHugePage = size_t{2} << 20;
LargeMemory large_memory(size_t bytes);

}  // namespace muster
