#include "muster/data/augment.h"

#include <algorithm>
#include <cstring>

#include "muster/base/random.h"

namespace muster::data {
namespace {

// Uniform in [-reach, reach].
int64_t draw_move(RandomStream& random, int64_t reach) {
  return static_cast<int64_t>(random.below(2 * static_cast<uint64_t>(reach) + 1)) - reach;
}

}  // namespace

Result<Augmenter> Augmenter::make(const config::AugmentOptions& options, const Schema& schema) {
  Augmenter result;
  result.shift_ = options.shift;
  result.crop_ = options.crop;
  result.flip_ = options.flip;
  if (options.shift < 0) return Error(ErrorKind::kJob, "augment.shift must not be negative");
  if (options.crop < 0) return Error(ErrorKind::kJob, "augment.crop must not be negative");
  if (!result.active()) return result;
  if (schema.input != DType::kFloat32 || schema.input_shape.size() != 3) {
    return Error(ErrorKind::kJob,
                 "augment is for images (channels, height, width), and these samples have {} "
                 "dimension(s); remove data.augment",
                 schema.input_shape.size());
  }
  result.channels_ = schema.input_shape[0];
  result.height_ = schema.input_shape[1];
  result.width_ = schema.input_shape[2];
  result.padding_ = schema.padding;
  if (result.padding_.size() == 1) {
    result.padding_.resize(static_cast<size_t>(result.channels_), result.padding_.front());
  }
  if (result.padding_.size() != static_cast<size_t>(result.channels_)) {
    return Error(ErrorKind::kJob, "the data has {} numbers to fill gaps with, and {} channels",
                 result.padding_.size(), result.channels_);
  }
  const int64_t smaller = std::min(result.height_, result.width_);
  const auto too_far = [&](const char* what, int64_t value) {
    return Error(ErrorKind::kJob,
                 "augment.{} is {}, but the images are {} x {} pixels; use less than {}", what,
                 value, result.height_, result.width_, smaller);
  };
  if (options.shift >= smaller) return too_far("shift", options.shift);
  if (options.crop >= smaller) return too_far("crop", options.crop);
  return result;
}

void Augmenter::apply(uint64_t seed, uint64_t pass, uint64_t sample, float* image) const {
  if (!active()) return;
  RandomStream random(seed, Purpose::kAugment, pass, sample);
  const int64_t shift_y = draw_move(random, shift_);
  const int64_t shift_x = draw_move(random, shift_);
  const int64_t crop_y = draw_move(random, crop_);
  const int64_t crop_x = draw_move(random, crop_);
  const bool flip = (random.next_u32() & 1) != 0;
  move(image, shift_y, shift_x);
  move(image, crop_y, crop_x);
  if (flip_ && flip) mirror(image);
}

void Augmenter::move(float* image, int64_t dy, int64_t dx) const {
  if (dy == 0 && dx == 0) return;
  const int64_t kept = width_ - std::abs(dx);
  for (int64_t channel = 0; channel < channels_; ++channel) {
    float* plane = image + channel * height_ * width_;
    const float padding = padding_[static_cast<size_t>(channel)];
    for (int64_t i = 0; i < height_; ++i) {
      // Away from where the rows come from, so that none is overwritten before it is used.
      const int64_t y = dy > 0 ? height_ - 1 - i : i;
      float* row = plane + y * width_;
      const int64_t from = y - dy;
      if (from < 0 || from >= height_) {
        std::fill_n(row, width_, padding);
        continue;
      }
      const float* source = plane + from * width_;
      std::memmove(row + std::max<int64_t>(dx, 0), source + std::max<int64_t>(-dx, 0),
                   static_cast<size_t>(kept) * sizeof(float));
      if (dx > 0) std::fill_n(row, dx, padding);
      if (dx < 0) std::fill_n(row + kept, -dx, padding);
    }
  }
}

void Augmenter::mirror(float* image) const {
  for (int64_t row = 0; row < channels_ * height_; ++row) {
    std::reverse(image + row * width_, image + (row + 1) * width_);
  }
}

}  // namespace muster::data
