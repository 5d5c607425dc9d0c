// Any bytes as an image: decoded and resized, or refused with a sentence, never a crash. The first
// byte sets the options.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "muster/data/blocks/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::data;
  if (size < 2) return 0;
  const size_t channels = (data[0] & 1) != 0 ? 1 : 3;
  const auto image =
      decode_image(std::as_bytes(std::span(data, size)).subspan(1), channels, 1 << 16);
  if (!image.ok()) return 0;
  const size_t height = 1 + (data[0] >> 1 & 7);
  const size_t width = 1 + (data[0] >> 4 & 7);
  const Image fitted = fit_image(*image, height, width, (data[0] & 128) != 0 ? 9 : 0);
  std::vector<float> planes(fitted.size());
  write_planes(fitted, PixelValues(), planes.data());
  return 0;
}
