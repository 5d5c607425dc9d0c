// Images per second of processor time: the library alone, decode_image, and all that makes a
// sample. The picture is 500 x 375 with the detail of a photograph, about 100 kB, which is
// ImageNet's mean.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <jpeglib.h>

#include "muster/base/check.h"
#include "muster/base/random.h"
#include "muster/data/blocks/image.h"

namespace muster::data {
namespace {

constexpr size_t kWidth = 500;
constexpr size_t kHeight = 375;

std::string make_jpeg() {
  std::vector<uint8_t> pixels(kWidth * kHeight * 3);
  const RandomStream random(1, Purpose::kUser);
  for (size_t i = 0; i < pixels.size(); ++i) {
    const size_t row = i / 3 / kWidth;
    const auto x = static_cast<double>(i / 3 % kWidth);
    const auto y = static_cast<double>(row);
    const double noise = random.block(i)[0] % 40;
    pixels[i] = static_cast<uint8_t>(100 + 60 * std::sin(x / 9 + static_cast<double>(i % 3)) +
                                     30 * std::cos(y / 5) + noise);
  }
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &out, &size);
  info.image_width = kWidth;
  info.image_height = kHeight;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 90, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < kHeight) {
    JSAMPROW row = pixels.data() + info.next_scanline * kWidth * 3;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<char*>(out), size);
  std::free(out);
  return file;
}

void report(benchmark::State& state, const std::string& file) {
  state.SetItemsProcessed(state.iterations());
  state.counters["file_bytes"] = static_cast<double>(file.size());
}

void BM_LibjpegAlone(benchmark::State& state) {
  const std::string file = make_jpeg();
  std::vector<uint8_t> pixels(kWidth * kHeight * 3);
  while (state.KeepRunning()) {
    jpeg_decompress_struct info{};
    jpeg_error_mgr errors{};
    info.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    jpeg_read_header(&info, TRUE);
    info.out_color_space = JCS_RGB;
    info.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&info);
    while (info.output_scanline < kHeight) {
      // As many rows at a time as decode_image reads.
      JSAMPROW rows[8];
      const size_t first = info.output_scanline;
      unsigned int count = 0;
      for (; count < 8 && first + count < kHeight; ++count) {
        rows[count] = pixels.data() + (first + count) * kWidth * 3;
      }
      jpeg_read_scanlines(&info, rows, count);
    }
    jpeg_finish_decompress(&info);
    jpeg_destroy_decompress(&info);
    benchmark::DoNotOptimize(pixels.data());
  }
  report(state, file);
}
BENCHMARK(BM_LibjpegAlone);

void BM_Decode(benchmark::State& state) {
  const std::string file = make_jpeg();
  while (state.KeepRunning()) {
    auto image = decode_image(std::as_bytes(std::span(file)), 3);
    MUSTER_CHECK(image.ok() && image->width == kWidth, "the picture is whole");
    benchmark::DoNotOptimize(image->pixels.get());
  }
  report(state, file);
}
BENCHMARK(BM_Decode);

// Without the decoding: shorter side 256, middle 224 x 224, to float planes.
void BM_ResizeAndScale(benchmark::State& state) {
  const std::string file = make_jpeg();
  const auto image = decode_image(std::as_bytes(std::span(file)), 3);
  const PixelValues values;
  std::vector<float> planes(size_t{3} * 224 * 224);
  while (state.KeepRunning()) {
    write_planes(fit_image(*image, 224, 224, 256), values, planes.data());
    benchmark::DoNotOptimize(planes.data());
  }
  report(state, file);
}
BENCHMARK(BM_ResizeAndScale);

}  // namespace
}  // namespace muster::data
