// Any bytes as what a replica sent: read or refused, never read beyond. What was read has ascending
// places inside their blocks, can be merged, and is read again as it was after it was written.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "muster/sync/sparse_code.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  if (size < 2) return 0;
  const exact::BlockLayout layout(std::vector<size_t>{5000, 0, data[0] * size_t{3} + 1});
  const sync::SparseCode code(layout, layout.tensors(), 1 + data[1]);
  auto rest = std::as_bytes(std::span(data, size)).subspan(2);
  sync::Sparse sparse = code.empty();
  if (!code.read(rest, sparse)) return 0;
  std::vector<float> weights(layout.elements());
  for (size_t b = 0; b < code.blocks(); ++b) (void)code.merge(b, {&sparse, 1}, 1, weights);
  code.subtract(sparse, weights);
  std::vector<std::byte> bytes;
  code.write(sparse, bytes);
  auto again = std::span<const std::byte>(bytes);
  sync::Sparse back = code.empty();
  if (!code.read(again, back) || !again.empty()) std::abort();
  if (back.places != sparse.places || back.codes != sparse.codes) std::abort();
  return 0;
}
