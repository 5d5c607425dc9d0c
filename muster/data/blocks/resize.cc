// Resizing by a triangle filter in fixed point: each output pixel is a weighted mean of the source
// pixels within one output pixel's distance. First along rows, then along columns, rounding to
// bytes in between, with the weights and the rounding of Pillow up to version 12, so that its
// results, on which most published models were trained, are met to the bit.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "muster/base/check.h"
#include "muster/data/blocks/image.h"

namespace muster::data {
namespace {

constexpr int kBits = 22;  // of a weight's fraction: 255 weights of 1 still fit 31 bits

// Where output pixels come from, along one side.
struct Weights {
  struct Source {
    size_t first = 0;  // source pixel
    size_t count = 0;
    size_t at = 0;  // its first weight in `values`
  };
  std::vector<Source> sources;
  std::vector<int32_t> values;
};

// For output pixels [first, first + count) of `to` that `from` source pixels become.
Weights make_weights(size_t from, size_t to, size_t first, size_t count) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double support = std::max(scale, 1.0);
  const double step = 1.0 / support;
  Weights result;
  std::vector<double> raw;
  for (size_t i = first; i < first + count; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto low = static_cast<int64_t>(std::floor(center - support + 0.5));
    const auto high = static_cast<int64_t>(std::floor(center + support + 0.5));
    const auto begin = static_cast<size_t>(std::max<int64_t>(low, 0));
    const size_t end = std::min(static_cast<size_t>(high), from);
    raw.clear();
    double sum = 0;
    for (size_t x = begin; x < end; ++x) {
      const double distance = std::abs(
          (static_cast<double>(x - begin) + static_cast<double>(begin) - center + 0.5) * step);
      raw.push_back(distance < 1 ? 1 - distance : 0);
      sum += raw.back();
    }
    result.sources.push_back({begin, end - begin, result.values.size()});
    for (const double w : raw) {
      const double share = sum != 0 ? w / sum : w;
      result.values.push_back(static_cast<int32_t>(std::floor(share * (1 << kBits) + 0.5)));
    }
  }
  return result;
}

uint8_t rounded(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255)); }

template <size_t kChannels>
void along_rows(const Image& image, const Weights& weights, size_t first_row, Image& out) {
  for (size_t y = 0; y < out.height; ++y) {
    const uint8_t* row = image.pixels.get() + (first_row + y) * image.width * kChannels;
    uint8_t* to = out.pixels.get() + y * out.width * kChannels;
    for (const auto& source : weights.sources) {
      const int32_t* weight = weights.values.data() + source.at;
      const uint8_t* from = row + source.first * kChannels;
      int32_t sum[kChannels];
      for (auto& s : sum) s = 1 << (kBits - 1);
      for (size_t k = 0; k < source.count; ++k) {
        for (size_t c = 0; c < kChannels; ++c) sum[c] += from[k * kChannels + c] * weight[k];
      }
      for (size_t c = 0; c < kChannels; ++c) *to++ = rounded(sum[c]);
    }
  }
}

void along_columns(const Image& rows, const Weights& weights, size_t first_row, Image& out) {
  const size_t length = out.width * out.channels;
  std::vector<int32_t> sum(length);
  for (size_t y = 0; y < out.height; ++y) {
    const auto& source = weights.sources[y];
    std::fill(sum.begin(), sum.end(), 1 << (kBits - 1));
    for (size_t k = 0; k < source.count; ++k) {
      const int32_t weight = weights.values[source.at + k];
      const uint8_t* from = rows.pixels.get() + (source.first - first_row + k) * length;
      for (size_t i = 0; i < length; ++i) sum[i] += from[i] * weight;
    }
    uint8_t* to = out.pixels.get() + y * length;
    for (size_t i = 0; i < length; ++i) to[i] = rounded(sum[i]);
  }
}

}  // namespace

Image fit_image(const Image& image, size_t height, size_t width, size_t shorter) {
  MUSTER_CHECK(height > 0 && width > 0 && (shorter == 0 || shorter >= std::max(height, width)),
               "what is cut out fits into the resized image");
  MUSTER_CHECK(image.size() > 0 && (image.channels == 1 || image.channels == 3),
               "an image has pixels of 1 or 3 channels");
  // Which side the given length is for, and that length.
  const bool by_width =
      shorter > 0 ? image.width <= image.height : image.width * height <= image.height * width;
  const size_t given = shorter > 0 ? shorter : by_width ? width : height;
  const size_t whole_width = by_width ? given : given * image.width / image.height;
  const size_t whole_height = by_width ? given * image.height / image.width : given;
  const Weights across = make_weights(image.width, whole_width, (whole_width - width) / 2, width);
  const Weights down =
      make_weights(image.height, whole_height, (whole_height - height) / 2, height);
  const size_t first_row = down.sources.front().first;
  const size_t end_row = down.sources.back().first + down.sources.back().count;
  Image rows = Image::make(end_row - first_row, width, image.channels);
  if (image.channels == 3) {
    along_rows<3>(image, across, first_row, rows);
  } else {
    along_rows<1>(image, across, first_row, rows);
  }
  Image out = Image::make(height, width, image.channels);
  along_columns(rows, down, first_row, out);
  return out;
}

}  // namespace muster::data
