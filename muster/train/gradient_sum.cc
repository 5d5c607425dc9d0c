#include "muster/train/gradient_sum.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "muster/base/check.h"
#include "muster/exact/fixed_point.h"
#include "muster/exact/float_sum.h"

namespace muster::train {

GradientSum::GradientSum(const exact::BlockLayout& layout, int lanes, size_t bucket_bytes)
    : layout_(layout),
      lanes_(lanes),
      sums_(std::aligned_alloc(64, std::max<size_t>(64, layout.elements() * sizeof(int32_t))),
            std::free),
      bucket_of_(layout.blocks().size()),
      added_in_(layout.blocks().size(), 0),
      seen_(layout.blocks().size(), 0),
      overflow_(layout.blocks().size(), 0),
      not_finite_(static_cast<size_t>(lanes), -1) {
  const auto blocks = layout.blocks();
  for (size_t first = 0; first < blocks.size();) {
    size_t last = first;
    size_t bytes = 0;
    do {
      bucket_of_[last] = static_cast<uint32_t>(buckets_.size());
      bytes += blocks[last++].size * sizeof(int32_t);
    } while (last < blocks.size() && bytes + blocks[last].size * sizeof(int32_t) <= bucket_bytes);
    auto bucket = std::make_unique<Bucket>();
    bucket->first = first;
    bucket->last = last;
    buckets_.push_back(std::move(bucket));
    first = last;
  }
}

void GradientSum::begin(Mode mode, std::span<const uint8_t> exponents) {
  MUSTER_CHECK(exponents.size() == seen_.size(), "one exponent per block");
  mode_ = mode;
  exponents_ = exponents;
  ++round_;
  std::fill(seen_.begin(), seen_.end(), uint8_t{0});
  std::fill(overflow_.begin(), overflow_.end(), uint8_t{0});
  std::fill(not_finite_.begin(), not_finite_.end(), int64_t{-1});
}

void GradientSum::add(int lane, size_t tensor, const float* gradient) {
  const size_t first = layout_.first_block(tensor);
  const size_t last = layout_.first_block(tensor + 1);
  if (first == last) return;
  const size_t tensor_begin = layout_.tensor_begin(tensor);
  const size_t first_bucket = bucket_of_[first];
  const size_t buckets = bucket_of_[last - 1] - first_bucket + 1;
  // Lanes that arrive together start at different buckets, so that they rarely wait for each other.
  const size_t start = static_cast<size_t>(lane) * buckets / static_cast<size_t>(lanes_);
  for (size_t i = 0; i < buckets; ++i) {
    Bucket& bucket = *buckets_[first_bucket + (start + i) % buckets];
    const std::lock_guard lock(bucket.mutex);
    const size_t end = std::min(bucket.last, last);
    for (size_t b = std::max(bucket.first, first); b < end; ++b) {
      add_block(lane, tensor, b, gradient + (layout_.blocks()[b].begin - tensor_begin));
    }
  }
}

void GradientSum::add_block(int lane, size_t tensor, size_t block, const float* gradient) {
  const auto& where = layout_.blocks()[block];
  const std::span<const float> values(gradient, where.size);
  const bool first = added_in_[block] != round_;
  uint8_t exponent = 0;
  switch (mode_) {
    case Mode::kExact: {
      const int scale = exact::scale_for(exponents_[block], lanes_);
      const auto added = first ? exact::store_block(values, scale, lanes_, ints(where.begin))
                               : exact::add_block(values, scale, lanes_, ints(where.begin));
      exponent = added.exponent;
      if (added.overflow) overflow_[block] = 1;
      break;
    }
    case Mode::kNative:
      exponent = first ? exact::store_floats(values, floats(where.begin))
                       : exact::add_floats(values, floats(where.begin));
      break;
    case Mode::kDry:
      exponent = exact::exponent_of(values);
      break;
  }
  added_in_[block] = round_;
  seen_[block] = std::max(seen_[block], exponent);
  auto& culprit = not_finite_[static_cast<size_t>(lane)];
  if (exponent == exact::kNotFinite && culprit < 0) culprit = static_cast<int64_t>(tensor);
}

GradientSum::Outcome GradientSum::finish() {
  Outcome outcome;
  for (size_t b = 0; b < seen_.size(); ++b) {
    outcome.overflow |= overflow_[b] != 0;
    if (added_in_[b] == round_ || mode_ == Mode::kDry) continue;
    const auto& where = layout_.blocks()[b];
    std::memset(ints(where.begin), 0, where.size * sizeof(int32_t));
  }
  for (size_t lane = 0; lane < not_finite_.size(); ++lane) {
    if (not_finite_[lane] < 0) continue;
    outcome.not_finite = {static_cast<int>(lane), static_cast<size_t>(not_finite_[lane])};
    break;
  }
  return outcome;
}

std::span<const float> GradientSum::read(size_t block, std::span<float> scratch) const {
  const auto& where = layout_.blocks()[block];
  if (mode_ == Mode::kNative) return {floats(where.begin), where.size};
  exact::to_float({ints(where.begin), where.size}, exact::scale_for(exponents_[block], lanes_),
                  scratch.data());
  return scratch.first(where.size);
}

}  // namespace muster::train
