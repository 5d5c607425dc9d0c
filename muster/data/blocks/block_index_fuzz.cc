// Any bytes as an index: read or refused with a sentence, never a crash. The hash at the end is put
// right first, or nothing behind it would ever be looked at.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "muster/base/hash.h"
#include "muster/data/blocks/block_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::data;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size >= 16) {
    const auto hash = muster::hash128(std::as_bytes(std::span(bytes)).first(size - 16));
    std::memcpy(bytes.data() + size - 16, &hash.high, 8);
    std::memcpy(bytes.data() + size - 8, &hash.low, 8);
  }
  const auto index = load_index(bytes);
  if (!index.ok()) return 0;
  if (save_index(*index) != bytes) std::abort();
  for (size_t i = 0; i < index->blocks.size(); ++i) {
    const Block& block = index->blocks[i];
    if (index->block_of(block.first) != i) std::abort();
    if (index->block_of(block.first + block.count - 1) != i) std::abort();
  }
  (void)index->hash();
  return 0;
}
