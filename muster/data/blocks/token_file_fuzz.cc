// Any bytes as a file of tokens, or as the index beside one. The first byte sets which.
#include <cstddef>
#include <cstdint>
#include <span>

#include "muster/data/blocks/datum.h"
#include "muster/data/blocks/token_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::data;
  if (size < 2) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  const std::byte bin[4000] = {};
  auto tokens = (data[0] & 3) == 0   ? read_npy(bytes)
                : (data[0] & 3) == 1 ? read_megatron(bin, bytes)
                                     : read_plain_tokens(bytes, size_t{1} << (data[0] >> 2 & 3));
  if (tokens.ok()) (void)largest_token(*tokens);
  (void)read_datum(bytes).ok();
  return 0;
}
