// Any two files: opened or refused, never a crash, and what was opened can be read to the last
// byte. The first byte says where the images end and the labels begin.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "muster/data/batch.h"
#include "muster/data/formats.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::data;
  if (size < 2) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  const size_t cut = data[0] * bytes.size() / 255;
  auto images = ByteReader::from_memory(bytes.first(cut), "images");
  auto labels = ByteReader::from_memory(bytes.subspan(cut), "labels");
  if (!images.ok() || !labels.ok()) return 0;
  auto dataset = read_idx(*std::move(images), *std::move(labels), {});
  if (!dataset.ok()) return 0;
  Batch batch;
  (void)read_range(**dataset, 0, 4, batch);
  (void)read_range(**dataset, (*dataset)->size() - 1, 1, batch);
  return 0;
}
