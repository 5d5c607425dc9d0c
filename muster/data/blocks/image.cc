#include "muster/data/blocks/image.h"

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <jpeglib.h>
// After jpeglib.h, which it needs.
#include <jerror.h>
#include <png.h>

#include "muster/base/text.h"

namespace muster::data {
namespace {

// A file with more scans than this was made to keep decoders busy; real ones have about ten.
constexpr int kMostScans = 200;

Status check_size(uint64_t width, uint64_t height, uint64_t most_pixels) {
  if (width == 0 || height == 0) return Error(ErrorKind::kData, "the image has no pixels");
  if (width > most_pixels || height > most_pixels || width * height > most_pixels) {
    return Error(ErrorKind::kData, "the image has {} x {} pixels; at most {} are read", width,
                 height, with_commas(most_pixels));
  }
  return {};
}

// ---- JPEG. The library reports errors by a jump, so no function that it may jump out of has
// objects to destroy: all state is in this struct, which outlives them.

struct Jpeg {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf jump{};
  char message[JMSG_LENGTH_MAX] = {};
  bool created = false;

  Jpeg() = default;
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;
  ~Jpeg() {
    if (created) jpeg_destroy_decompress(&info);
  }
};

[[noreturn]] void jpeg_fail(j_common_ptr info) {
  auto* jpeg = static_cast<Jpeg*>(info->client_data);
  jpeg->errors.format_message(info, jpeg->message);
  std::longjmp(jpeg->jump, 1);
}

// level -1: a warning; others: traces.
void jpeg_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:  // bytes between markers, which no pixel comes from
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
      return;
    default:
      jpeg_fail(info);
  }
}

void jpeg_progress(j_common_ptr info) {
  auto* jpeg = static_cast<Jpeg*>(info->client_data);
  if (jpeg->info.input_scan_number <= kMostScans) return;
  std::snprintf(jpeg->message, sizeof(jpeg->message), "more than %d scans", kMostScans);
  std::longjmp(jpeg->jump, 1);
}

bool read_jpeg_header(Jpeg& jpeg, const unsigned char* bytes, unsigned long size) {
  if (setjmp(jpeg.jump) != 0) return false;
  jpeg.info.err = jpeg_std_error(&jpeg.errors);
  jpeg.errors.error_exit = jpeg_fail;
  jpeg.errors.emit_message = jpeg_message;
  jpeg.progress.progress_monitor = jpeg_progress;
  jpeg.info.client_data = &jpeg;
  jpeg_create_decompress(&jpeg.info);
  jpeg.created = true;
  jpeg.info.progress = &jpeg.progress;
  jpeg_mem_src(&jpeg.info, bytes, size);
  jpeg_read_header(&jpeg.info, TRUE);
  return true;
}

bool read_jpeg_pixels(Jpeg& jpeg, uint8_t* to, size_t stride) {
  if (setjmp(jpeg.jump) != 0) return false;
  jpeg.info.dct_method = JDCT_ISLOW;
  jpeg.info.do_fancy_upsampling = TRUE;
  jpeg_start_decompress(&jpeg.info);
  while (jpeg.info.output_scanline < jpeg.info.output_height) {
    JSAMPROW rows[8];
    const size_t first = jpeg.info.output_scanline;
    unsigned int count = 0;
    for (; count < 8 && first + count < jpeg.info.output_height; ++count) {
      rows[count] = to + (first + count) * stride;
    }
    jpeg_read_scanlines(&jpeg.info, rows, count);
  }
  jpeg_finish_decompress(&jpeg.info);
  return true;
}

// a * b / 255, rounded.
uint8_t scaled(uint32_t a, uint32_t b) {
  const uint32_t product = a * b + 128;
  return static_cast<uint8_t>(((product >> 8) + product) >> 8);
}

// Cyan, magenta, yellow and black, in place of which Adobe's programs, and so nearly all that write
// such files, store 255 minus each.
Image from_cmyk(const Image& inks, bool inverted) {
  Image image = Image::make(inks.height, inks.width, 3);
  for (size_t i = 0; i < inks.height * inks.width; ++i) {
    const uint8_t* from = inks.pixels.get() + 4 * i;
    const uint32_t flip = inverted ? 255 : 0;
    const uint32_t light = 255 - (from[3] ^ flip);
    for (size_t c = 0; c < 3; ++c) {
      image.pixels[3 * i + c] = static_cast<uint8_t>(light - scaled(from[c] ^ flip, light));
    }
  }
  return image;
}

// The usual weights of red, green and blue, as Pillow's convert("L") has them.
Image to_grey(const Image& image) {
  Image grey = Image::make(image.height, image.width, 1);
  for (size_t i = 0; i < grey.size(); ++i) {
    const uint8_t* from = image.pixels.get() + 3 * i;
    grey.pixels[i] = static_cast<uint8_t>(
        (from[0] * 19595U + from[1] * 38470U + from[2] * 7471U + 0x8000U) >> 16);
  }
  return grey;
}

Image to_rgb(const Image& grey) {
  Image image = Image::make(grey.height, grey.width, 3);
  for (size_t i = 0; i < grey.size(); ++i) {
    std::memset(image.pixels.get() + 3 * i, grey.pixels[i], 3);
  }
  return image;
}

Result<Image> decode_jpeg(std::span<const std::byte> file, size_t channels, uint64_t most_pixels) {
  Jpeg jpeg;
  const auto wrong = [&] {
    return Error(ErrorKind::kData, "the JPEG image is damaged: {}", jpeg.message);
  };
  if (!read_jpeg_header(jpeg, reinterpret_cast<const unsigned char*>(file.data()), file.size())) {
    return wrong();
  }
  MUSTER_RETURN_IF_ERROR(check_size(jpeg.info.image_width, jpeg.info.image_height, most_pixels));
  const bool inks =
      jpeg.info.jpeg_color_space == JCS_CMYK || jpeg.info.jpeg_color_space == JCS_YCCK;
  jpeg.info.out_color_space = inks ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  Image image = Image::make(jpeg.info.image_height, jpeg.info.image_width, inks ? 4 : channels);
  if (!read_jpeg_pixels(jpeg, image.pixels.get(), image.width * image.channels)) return wrong();
  if (!inks) return image;
  image = from_cmyk(image, jpeg.info.saw_Adobe_marker != 0);
  if (channels == 1) image = to_grey(image);
  return image;
}

// ---- PNG, with errors by jumps too.

struct Png {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const std::byte> left;
  std::jmp_buf jump{};
  char message[128] = {};

  Png() = default;
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;
  ~Png() {
    if (png != nullptr) png_destroy_read_struct(&png, &info, nullptr);
  }
};

[[noreturn]] void png_fail(png_structp handle, png_const_charp message) {
  auto* png = static_cast<Png*>(png_get_error_ptr(handle));
  std::snprintf(png->message, sizeof(png->message), "%s", message);
  std::longjmp(png->jump, 1);
}

// Warnings are about chunks besides the pixels.
void png_ignore(png_structp /*handle*/, png_const_charp /*message*/) {}

void png_take(png_structp handle, png_bytep to, size_t length) {
  auto* png = static_cast<Png*>(png_get_io_ptr(handle));
  if (length > png->left.size()) png_error(handle, "the file is cut short");
  std::memcpy(to, png->left.data(), length);
  png->left = png->left.subspan(length);
}

bool read_png_header(Png& png) {
  if (setjmp(png.jump) != 0) return false;
  png.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &png, png_fail, png_ignore);
  if (png.png == nullptr) return false;
  png.info = png_create_info_struct(png.png);
  if (png.info == nullptr) return false;
  png_set_read_fn(png.png, &png, png_take);
  png_set_user_limits(png.png, 0x7fffffff, 0x7fffffff);  // decode_png has its own
  png_set_chunk_malloc_max(png.png, 8 << 20);
  png_set_keep_unknown_chunks(png.png, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
  png_read_info(png.png, png.info);
  return true;
}

// To 8 bits, without transparency; grey stays grey.
bool prepare_png(Png& png) {
  if (setjmp(png.jump) != 0) return false;
  png_set_expand(png.png);
  png_set_scale_16(png.png);
  png_set_strip_alpha(png.png);
  png_set_interlace_handling(png.png);
  png_read_update_info(png.png, png.info);
  return true;
}

bool read_png_pixels(Png& png, png_bytep* rows) {
  if (setjmp(png.jump) != 0) return false;
  png_read_image(png.png, rows);
  png_read_end(png.png, nullptr);
  return true;
}

Result<Image> decode_png(std::span<const std::byte> file, size_t channels, uint64_t most_pixels) {
  Png png;
  png.left = file;
  const auto wrong = [&] {
    return Error(ErrorKind::kData, "the PNG image is damaged: {}",
                 png.message[0] != '\0' ? png.message : "no memory");
  };
  if (!read_png_header(png)) return wrong();
  const uint64_t width = png_get_image_width(png.png, png.info);
  const uint64_t height = png_get_image_height(png.png, png.info);
  MUSTER_RETURN_IF_ERROR(check_size(width, height, most_pixels));
  if (!prepare_png(png)) return wrong();
  Image image = Image::make(height, width, png_get_channels(png.png, png.info));
  if ((image.channels != 1 && image.channels != 3) ||
      png_get_rowbytes(png.png, png.info) != width * image.channels) {
    return Error(ErrorKind::kData, "the PNG image has {} channels; 1 or 3 can be read",
                 image.channels);
  }
  std::vector<png_bytep> rows(height);
  for (size_t y = 0; y < height; ++y) rows[y] = image.pixels.get() + y * width * image.channels;
  if (!read_png_pixels(png, rows.data())) return wrong();
  if (image.channels == channels) return image;
  return channels == 1 ? to_grey(image) : to_rgb(image);
}

bool starts_with(std::span<const std::byte> file, std::string_view start) {
  return file.size() >= start.size() && std::memcmp(file.data(), start.data(), start.size()) == 0;
}

}  // namespace

Image Image::make(size_t height, size_t width, size_t channels) {
  Image image;
  image.height = height;
  image.width = width;
  image.channels = channels;
  image.pixels = std::make_unique_for_overwrite<uint8_t[]>(image.size());
  return image;
}

Result<Image> decode_image(std::span<const std::byte> file, size_t channels, uint64_t most_pixels) {
  MUSTER_CHECK(channels == 1 || channels == 3, "an image has 1 or 3 channels");
  if (starts_with(file, "\xff\xd8\xff")) return decode_jpeg(file, channels, most_pixels);
  if (starts_with(file, "\x89PNG\r\n\x1a\n")) return decode_png(file, channels, most_pixels);
  if (file.empty()) return Error(ErrorKind::kData, "the image is empty");
  std::string start;
  for (const std::byte b : file.first(std::min<size_t>(file.size(), 8))) {
    start += fmt::format(" {:02x}", static_cast<uint8_t>(b));
  }
  return Error(ErrorKind::kData, "the image is neither JPEG nor PNG: it starts with{}", start);
}

void write_planes(const Image& image, const PixelValues& values, float* to) {
  const size_t area = image.height * image.width;
  const std::span<const uint8_t> pixels(image.pixels.get(), area * image.channels);
  if (image.channels == 3) return values.put_in_turns(pixels, to);
  MUSTER_CHECK(image.channels == 1, "an image has 1 or 3 channels");
  values.put(pixels, 1, to);
}

}  // namespace muster::data
