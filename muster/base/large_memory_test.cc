#include "muster/base/large_memory.h"

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

TEST(LargeMemory, IsZeroAndAligned) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100}, kHugePage - 1, kHugePage + 1}) {
    const auto memory = large_memory(bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % 64, 0U) << bytes;
    EXPECT_TRUE(std::all_of(memory.get(), memory.get() + bytes, [](std::byte b) {
      return b == std::byte{0};
    })) << bytes;
  }
}

TEST(LargeMemory, AsksForHugePages) {
  std::ifstream setting("/sys/kernel/mm/transparent_hugepage/enabled");
  if (!setting) GTEST_SKIP() << "this kernel has no transparent huge pages";
  const auto memory = large_memory(3 * kHugePage);
  EXPECT_NE(flags_of(memory.get()).find(" hg "), std::string::npos) << flags_of(memory.get());
}

}  // namespace
}  // namespace muster
