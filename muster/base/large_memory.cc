#include "muster/base/large_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "muster/base/check.h"

namespace muster {

void LargeMemoryFree::operator()(std::byte* memory) const { std::free(memory); }

LargeMemory large_memory(size_t bytes) {
  constexpr size_t kLine = 64;
  const size_t unit = bytes >= kHugePage ? kHugePage : kLine;
  // Rounded up, so that the last huge page holds nobody else's memory.
  const size_t size = std::max<size_t>(1, (bytes + unit - 1) / unit) * unit;
  LargeMemory memory(static_cast<std::byte*>(std::aligned_alloc(unit, size)));
  MUSTER_CHECK(memory != nullptr, "out of memory");
  // A wish: a kernel without huge pages refuses it, and nothing depends on it but time.
  if (unit == kHugePage) (void)madvise(memory.get(), size, MADV_HUGEPAGE);
  std::memset(memory.get(), 0, size);
  return memory;
}

}  // namespace muster
