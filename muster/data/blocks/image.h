// Images from JPEG and PNG files in memory, and what happens to them before they are a sample.
//
// The same bytes give the same pixels on every machine with the same version of the JPEG library,
// which is used with the accurate integer transform and "fancy" upsampling, never with the fast
// modes; resizing is done here, in fixed point. decoder_hash() tells versions apart that differ.
// Orientation tags, colour profiles, gamma and transparency are ignored, as Pillow's convert("RGB")
// does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/data/scaling.h"

namespace muster::data {

// Rows from the top, pixels from the left, channels of a pixel side by side.
struct Image {
  size_t height = 0;
  size_t width = 0;
  size_t channels = 0;
  std::unique_ptr<uint8_t[]> pixels;

  static Image make(size_t height, size_t width, size_t channels);
  size_t size() const { return height * width * channels; }
};

inline constexpr uint64_t kMostPixels = uint64_t{1} << 26;

// channels: 3 for red, green and blue, 1 for grey (of a JPEG: its luminance as stored). Errors
// (kData) say what is wrong: neither JPEG nor PNG, cut short, damaged, more than `most_pixels`.
// What decoders usually only warn of is an error too if pixels had to be made up.
Result<Image> decode_image(std::span<const std::byte> file, size_t channels,
                           uint64_t most_pixels = kMostPixels);

// Of the pixels that a few JPEG files have here: part of the hash of data that has images. They are
// decoded once.
Hash128 decoder_hash();

// The middle `height` x `width` of the image once it is resized, keeping its proportions, so that
// its shorter side is `shorter` pixels long, which is at least the larger of both. 0: as small as
// covers `height` x `width`. The other side is rounded down; of an odd margin the smaller half is
// above and to the left. Resizing is a triangle filter that covers all source pixels ("bilinear
// with antialiasing"), to the bit what Pillow's Image.resize(size, BILINEAR) gives up to version 12
// (later ones resize some along columns first).
Image fit_image(const Image& image, size_t height, size_t width, size_t shorter);

// Plane by plane, each byte replaced by what it becomes.
void write_planes(const Image& image, const PixelValues& values, float* to);

}  // namespace muster::data
