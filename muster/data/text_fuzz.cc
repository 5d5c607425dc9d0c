// Any bytes as text: read or refused with a sentence, never a crash. The first byte sets the
// options.
#include <cstddef>
#include <cstdint>
#include <span>

#include "muster/data/batch.h"
#include "muster/data/formats.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::data;
  if (size < 2) return 0;
  muster::config::SourceOptions options;
  options.unit = (data[0] & 1) != 0 ? "bytes" : "characters";
  options.context = 1 + (data[0] >> 4);
  if ((data[0] & 2) != 0) options.part = {0.25, 0.75};
  auto reader = ByteReader::from_memory(std::as_bytes(std::span(data, size)).subspan(1), "x.txt");
  if (!reader.ok()) return 0;
  auto dataset = read_text(*std::move(reader), options);
  if (!dataset.ok()) return 0;
  Batch batch;
  (void)read_range(**dataset, 0, (*dataset)->size(), batch);
  return 0;
}
