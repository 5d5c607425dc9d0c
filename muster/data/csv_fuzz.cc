// Any bytes as a table: read or refused with a sentence, never a crash. The first byte sets the
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
  options.header = (data[0] & 1) != 0;
  options.target = (data[0] & 2) != 0 ? "value" : "class";
  options.separator = (data[0] & 4) != 0 ? ";" : ",";
  if ((data[0] & 8) != 0) options.label = "label";
  if ((data[0] & 16) != 0) options.label = "1";
  auto reader = ByteReader::from_memory(std::as_bytes(std::span(data, size)).subspan(1), "x.csv");
  if (!reader.ok()) return 0;
  auto dataset = read_csv(*std::move(reader), options);
  if (!dataset.ok()) return 0;
  Batch batch;
  (void)read_range(**dataset, 0, (*dataset)->size(), batch);
  return 0;
}
