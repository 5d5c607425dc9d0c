// Caffe's Datum: one image, encoded or as raw bytes or floats, and its label.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "muster/base/result.h"

namespace muster::data {

struct Datum {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  std::span<const std::byte> data;  // an image file if `encoded`, otherwise channel by channel
  std::vector<float> floats;        // instead of `data`
  int64_t label = 0;
  bool encoded = false;
};

// `message` must outlive the result. Errors (kData): it is no Datum, or its size is not that of its
// contents.
Result<Datum> read_datum(std::span<const std::byte> message);

}  // namespace muster::data
