#include "muster/base/memory.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace muster {
namespace {

// The flags of the mapping that holds this address, as /proc/self/smaps lists them.
std::string flags_of(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t first = 0;
    uintptr_t last = 0;
    char dash = 0;
    std::istringstream words(line);
    if (words >> std::hex >> first >> dash >> last && dash == '-') {
      inside = first <= wanted && wanted < last;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line + " ";
    }
  }
  return "";
}

TEST(HostMemory, IsAlignedAndZeroButForBatches) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100}, kHugePage - 1, kHugePage + 1}) {
    for (const auto use : {BufferUse::kState, BufferUse::kSums, BufferUse::kBatch}) {
      const Buffer buffer = host_memory().allocate(bytes, use);
      ASSERT_NE(buffer.data(), nullptr);
      EXPECT_EQ(buffer.size(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % Buffer::kAlignment, 0U) << bytes;
      const auto zero = [](std::byte b) { return b == std::byte{0}; };
      EXPECT_TRUE(use == BufferUse::kBatch || std::ranges::all_of(buffer.bytes(), zero)) << bytes;
    }
  }
}

TEST(HostMemory, AsksForHugePages) {
  const std::ifstream setting("/sys/kernel/mm/transparent_hugepage/enabled");
  if (!setting) GTEST_SKIP() << "this kernel has no transparent huge pages";
  const Buffer buffer = host_memory().allocate(3 * kHugePage, BufferUse::kState);
  EXPECT_NE(flags_of(buffer.data()).find(" hg "), std::string::npos) << flags_of(buffer.data());
}

TEST(Buffer, GivesItsMemoryBackOnce) {
  class Counting final : public Memory {
   public:
    Buffer allocate(size_t bytes, BufferUse /*use*/) override {
      ++live;
      return {*this, new std::byte[bytes], bytes};
    }
    int live = 0;

   private:
    void free(std::byte* data, size_t /*size*/) override {
      --live;
      delete[] data;
    }
  };
  Counting memory;
  {
    Buffer one = memory.allocate(10, BufferUse::kBatch);
    Buffer other = std::move(one);
    EXPECT_EQ(memory.live, 1);
    EXPECT_EQ(other.size(), 10U);
    other = memory.allocate(20, BufferUse::kBatch);
    EXPECT_EQ(memory.live, 1) << "what it had before is given back";
    EXPECT_EQ(other.size(), 20U);
  }
  EXPECT_EQ(memory.live, 0);
}

}  // namespace
}  // namespace muster
