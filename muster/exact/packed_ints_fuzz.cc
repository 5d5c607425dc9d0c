// Any bytes as packed integers: unpacked or refused, never read beyond. What was unpacked is packed
// to the same values again. The first byte says how many values are expected.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "muster/exact/packed_ints.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::exact;
  if (size < 1) return 0;
  const auto packed = std::as_bytes(std::span(data, size)).subspan(1);
  std::vector<int32_t> values(data[0] * size_t{21});
  if (!unpack(packed, values)) return 0;
  std::vector<std::byte> again(largest_packed_size(values.size()));
  for (const Packing packing : {Packing::kFast, Packing::kSmall}) {
    again.resize(largest_packed_size(values.size()));
    again.resize(pack(values, again.data(), packing));
    std::vector<int32_t> back(values.size());
    if (!unpack_add(again, back) || back != values) std::abort();
  }
  return 0;
}
