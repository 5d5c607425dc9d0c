// Any bytes as a Datum of an LMDB: read or refused with a sentence, never a crash. What it says of
// its size is that of its contents.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "muster/data/blocks/datum.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto datum = muster::data::read_datum(std::as_bytes(std::span(data, size)));
  if (!datum.ok() || datum->encoded) return 0;
  if (datum->channels < 1 || datum->height < 1 || datum->width < 1) std::abort();
  const auto elements = static_cast<unsigned __int128>(datum->channels) *
                        static_cast<uint64_t>(datum->height) * static_cast<uint64_t>(datum->width);
  if (elements != (datum->floats.empty() ? datum->data.size() : datum->floats.size())) std::abort();
  return 0;
}
