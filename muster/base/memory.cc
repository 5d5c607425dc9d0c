#include "muster/base/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "muster/base/check.h"

namespace muster {
namespace {

class HostMemory final : public Memory {
 public:
  Buffer allocate(size_t bytes, BufferUse use) override {
    const bool streamed = use != BufferUse::kBatch;
    const size_t unit = streamed && bytes >= kHugePage ? kHugePage : Buffer::kAlignment;
    // Rounded up, so that the last huge page holds nobody else's memory.
    const size_t size = std::max<size_t>(1, (bytes + unit - 1) / unit) * unit;
    auto* data = static_cast<std::byte*>(std::aligned_alloc(unit, size));
    MUSTER_CHECK(data != nullptr, "out of memory");
    // A wish: a kernel without huge pages refuses it, and nothing depends on it but time.
    if (unit == kHugePage) (void)madvise(data, size, MADV_HUGEPAGE);
    if (streamed) std::memset(data, 0, size);
    return {*this, data, bytes};
  }

 private:
  void free(std::byte* data, size_t /*size*/) override { std::free(data); }
};

}  // namespace

Memory& host_memory() {
  // Never destroyed: buffers of other static objects may be given back after the end of main.
  static auto* memory = new HostMemory;
  return *memory;
}

}  // namespace muster
