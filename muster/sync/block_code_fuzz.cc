// Any bytes as what a replica sent of a block of its gradient: added to a sum or refused, never
// read beyond; what was added is finite.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "muster/sync/block_code.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  if (size < 3) return 0;
  config::SyncOptions options;
  const char* const strategies[] = {"topk", "threshold", "onebit"};
  options.strategy = strategies[data[0] % 3];
  options.keep = 1 + data[1] * 16;
  const auto code = sync::make_block_code(options);
  std::vector<float> sum(1 + data[2] * 16);
  if (!code->add(std::as_bytes(std::span(data, size)).subspan(3), sum)) return 0;
  for (const float v : sum) {
    if (!std::isfinite(v)) std::abort();
  }
  std::vector<std::byte> bytes;
  code->encode(sum, bytes);
  if (bytes.size() > code->largest_size(sum.size())) std::abort();
  if (!code->add(bytes, sum)) std::abort();
  return 0;
}
