#include "muster/train/gradient_sum.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "muster/base/check.h"
#include "muster/exact/fixed_point.h"
#include "muster/exact/float_sum.h"

namespace muster::train {

GradientSum::GradientSum(const exact::BlockLayout& layout, int lanes, size_t bucket_bytes,
                         size_t late)
    : layout_(layout),
      lanes_(lanes),
      // Zeros: the padding between tensors travels with them and must be zero.
      sums_(large_memory(layout.block_elements() * sizeof(int32_t))),
      bucket_of_(layout.blocks().size()),
      added_in_(layout.blocks().size(), 0),
      seen_(layout.blocks().size(), 0),
      not_finite_(static_cast<size_t>(lanes)) {
  const auto blocks = layout.blocks();
  const size_t late_block = layout.first_block(late);
  for (size_t first = 0; first < blocks.size();) {
    size_t last = first;
    size_t bytes = 0;
    do {
      bucket_of_[last] = static_cast<uint32_t>(buckets_.size());
      bytes += blocks[last++].size * sizeof(int32_t);
    } while (last < blocks.size() && last != late_block &&
             bytes + blocks[last].size * sizeof(int32_t) <= bucket_bytes);
    auto bucket = std::make_unique<Bucket>();
    bucket->first = first;
    bucket->last = last;
    buckets_.push_back(std::move(bucket));
    first = last;
  }
  const size_t early = late_block < blocks.size() ? bucket_of_[late_block] : buckets_.size();
  for (size_t b = early; b-- > 0;) order_.push_back(b);
  for (size_t b = early; b < buckets_.size(); ++b) order_.push_back(b);
}

void GradientSum::begin(Mode mode, std::span<const uint8_t> exponents, int own_lanes,
                        int64_t step) {
  MUSTER_CHECK(exponents.size() == seen_.size(), "one exponent per block");
  mode_ = mode;
  step_ = step;
  exponents_ = exponents;
  ++round_;
  std::fill(seen_.begin(), seen_.end(), uint8_t{0});
  for (auto& tensor : not_finite_) tensor.store(-1, std::memory_order_relaxed);
  for (auto& bucket : buckets_) {
    bucket->missing = (bucket->last - bucket->first) * static_cast<size_t>(own_lanes);
    bucket->state.store(State::kOpen, std::memory_order_relaxed);
  }
}

void GradientSum::add(int lane, size_t tensor, const float* gradient) {
  add_blocks(lane, tensor, layout_.first_block(tensor), layout_.first_block(tensor + 1), gradient);
}

void GradientSum::add_part(int lane, size_t tensor, size_t first, std::span<const float> part) {
  MUSTER_CHECK(first % exact::kBlockSize == 0, "a part begins inside a block");
  const size_t block = layout_.first_block(tensor) + first / exact::kBlockSize;
  const size_t blocks = (part.size() + exact::kBlockSize - 1) / exact::kBlockSize;
  add_blocks(lane, tensor, block, block + blocks, part.data());
}

void GradientSum::add_blocks(int lane, size_t tensor, size_t first, size_t last,
                             const float* gradient) {
  if (first == last) return;
  const size_t begin = layout_.blocks()[first].begin;
  const size_t first_bucket = bucket_of_[first];
  const size_t buckets = bucket_of_[last - 1] - first_bucket + 1;
  // Lanes that arrive together start at different buckets, so that they rarely wait for each other.
  const size_t start = static_cast<size_t>(lane) * buckets / static_cast<size_t>(lanes_);
  for (size_t i = 0; i < buckets; ++i) {
    Bucket& bucket = *buckets_[first_bucket + (start + i) % buckets];
    const std::lock_guard lock(bucket.mutex);
    const size_t end = std::min(bucket.last, last);
    for (size_t b = std::max(bucket.first, first); b < end; ++b) {
      // More than its lanes have would change a bucket that may be on its way to the others.
      MUSTER_CHECK(bucket.missing > 0, "a lane added a gradient twice");
      add_block(lane, tensor, b, gradient + (layout_.blocks()[b].begin - begin));
      if (--bucket.missing == 0) settle(bucket, State::kComplete);
    }
  }
}

void GradientSum::add_block(int lane, size_t tensor, size_t block, const float* gradient) {
  const auto& where = layout_.blocks()[block];
  const std::span<const float> values(gradient, where.size);
  const bool first = added_in_[block] != round_;
  uint8_t exponent = 0;
  switch (mode_) {
    case Mode::kExact:
      exponent = add_exact(lane, block, values, first);
      break;
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
  if (exponent != exact::kNotFinite) return;
  int64_t none = -1;
  not_finite_[static_cast<size_t>(lane)].compare_exchange_strong(none, static_cast<int64_t>(tensor),
                                                                 std::memory_order_relaxed);
}

uint8_t GradientSum::add_exact(int lane, size_t block, std::span<const float> values, bool first) {
  const int scale = exact::scale_for(exponents_[block], lanes_);
  const size_t begin = layout_.blocks()[block].begin;
  int32_t* sum = ints(begin);
  if (!seed_) {
    return (first ? exact::store_block(values, scale, lanes_, sum)
                  : exact::add_block(values, scale, lanes_, sum))
        .exponent;
  }
  exact::Stochastic rounding(*seed_, step_, lane);
  rounding.first = begin;
  return (first ? exact::store_block(values, scale, lanes_, rounding, sum)
                : exact::add_block(values, scale, lanes_, rounding, sum))
      .exponent;
}

void GradientSum::settle(Bucket& bucket, State state) {
  bucket.state.store(state, std::memory_order_release);
  bucket.state.notify_all();
}

void GradientSum::flush() {
  for (auto& bucket : buckets_) {
    if (bucket->state.load(std::memory_order_relaxed) == State::kComplete) continue;
    for (size_t b = bucket->first; b < bucket->last; ++b) {
      if (added_in_[b] == round_ || mode_ == Mode::kDry) continue;
      const auto& where = layout_.blocks()[b];
      std::memset(ints(where.begin), 0, where.size * sizeof(int32_t));
    }
    settle(*bucket, State::kComplete);
  }
}

void GradientSum::abandon() {
  for (auto& bucket : buckets_) settle(*bucket, State::kAbandoned);
}

bool GradientSum::wait_complete(size_t bucket) {
  auto& state = buckets_[bucket]->state;
  state.wait(State::kOpen, std::memory_order_acquire);
  return state.load(std::memory_order_acquire) == State::kComplete;
}

std::pair<size_t, size_t> GradientSum::extent(size_t bucket) const {
  const auto& first = layout_.blocks()[buckets_[bucket]->first];
  const auto& last = layout_.blocks()[buckets_[bucket]->last - 1];
  return {first.begin, last.begin + last.size - first.begin};
}

std::span<int32_t> GradientSum::int_bucket(size_t bucket) {
  const auto [begin, size] = extent(bucket);
  return {ints(begin), size};
}

std::span<float> GradientSum::float_bucket(size_t bucket) {
  const auto [begin, size] = extent(bucket);
  return {floats(begin), size};
}

std::span<const float> GradientSum::read(size_t block, std::span<float> scratch) const {
  const auto& where = layout_.blocks()[block];
  if (mode_ == Mode::kNative) return {floats(where.begin), where.size};
  exact::to_float({ints(where.begin), where.size}, exact::scale_for(exponents_[block], lanes_),
                  scratch.data());
  return scratch.first(where.size);
}

}  // namespace muster::train
