#include "muster/train/step/gradient_sum.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "muster/base/check.h"
#include "muster/base/fault_point.h"
#include "muster/base/hash.h"
#include "muster/exact/fixed_point.h"
#include "muster/exact/float_sum.h"

namespace muster::train {

GradientSum::GradientSum(const exact::BlockLayout& layout, int lanes, size_t bucket_bytes,
                         size_t late, Memory& memory)
    : layout_(layout),
      lanes_(lanes),
      late_block_(layout.first_block(late)),
      memory_(memory),
      bucket_of_(layout.blocks().size()),
      seen_(layout.blocks().size(), 0),
      not_finite_(static_cast<size_t>(lanes)) {
  add_buffer();
  const auto blocks = layout.blocks();
  for (size_t first = 0; first < blocks.size();) {
    size_t last = first;
    size_t bytes = 0;
    do {
      bucket_of_[last] = static_cast<uint32_t>(buckets_.size());
      bytes += blocks[last++].size * sizeof(int32_t);
    } while (last < blocks.size() && last != late_block_ &&
             bytes + blocks[last].size * sizeof(int32_t) <= bucket_bytes);
    auto bucket = std::make_unique<Bucket>();
    bucket->first = first;
    bucket->last = last;
    buckets_.push_back(std::move(bucket));
    first = last;
  }
  const size_t early = late_block_ < blocks.size() ? bucket_of_[late_block_] : buckets_.size();
  for (size_t b = early; b-- > 0;) order_.push_back(b);
  for (size_t b = early; b < buckets_.size(); ++b) order_.push_back(b);
}

void GradientSum::add_buffer() {
  // Zeros: the padding between tensors travels with them and must be zero.
  sums_.push_back(memory_.allocate(layout_.block_elements() * sizeof(int32_t), BufferUse::kSums));
  added_in_.emplace_back(layout_.blocks().size(), 0);
}

void GradientSum::set_groups(int groups) {
  MUSTER_CHECK(1 <= groups && groups <= lanes_, "a group has at least one lane");
  groups_ = groups;
  place_of_.assign(static_cast<size_t>(groups), 0);
}

void GradientSum::set_rounding(const Rounding& rounding) {
  const bool few = exact::SumFormat(lanes_, rounding.bits).few();
  MUSTER_CHECK(rounding.stochastic || !few, "few bits need stochastic rounding");
  MUSTER_CHECK(few || !rounding.rotated, "a rotation with all bits is of no use");
  rounding_ = rounding;
}

void GradientSum::begin(Mode mode, std::span<const uint8_t> exponents,
                        std::span<const int> own_lanes, int64_t step) {
  MUSTER_CHECK(exponents.size() == seen_.size(), "one exponent per block");
  mode_ = mode;
  step_ = step;
  exponents_ = exponents;
  if (rounding_.rotated) rotation_.emplace(rounding_.seed, step);
  ++round_;
  if (groups_ > 1 && mode == Mode::kNative) {
    own_groups_ = {0};  // floats are not divided
    std::ranges::fill(place_of_, 0);
  } else if (groups_ > 1) {
    own_groups_.clear();
    for (const int lane : own_lanes) {
      const int group = group_of(lane);
      if (std::ranges::find(own_groups_, group) != own_groups_.end()) continue;
      place_of_[static_cast<size_t>(group)] = own_groups_.size();
      own_groups_.push_back(group);
      if (sums_.size() < own_groups_.size()) add_buffer();
    }
  }
  watch(-1, -1);
  std::fill(seen_.begin(), seen_.end(), uint8_t{0});
  for (auto& tensor : not_finite_) tensor.store(-1, std::memory_order_relaxed);
  for (auto& bucket : buckets_) {
    bucket->missing = (bucket->last - bucket->first) * own_lanes.size();
    bucket->state.store(State::kOpen, std::memory_order_relaxed);
  }
}

void GradientSum::watch(int own, int other) {
  MUSTER_CHECK(mode_ == Mode::kExact || (own < 0 && other < 0), "audits need exact sums");
  own_.lane = own;
  other_.lane = other;
  own_.hash.store(0, std::memory_order_relaxed);
  other_.hash.store(0, std::memory_order_relaxed);
}

void GradientSum::note(Watched& watched, size_t block, uint8_t exponent,
                       std::span<const int32_t> q) {
  const uint64_t key = block << 8 | exponent;
  watched.hash.fetch_add(hash64(q.data(), q.size_bytes(), key), std::memory_order_relaxed);
}

uint8_t GradientSum::exponent_of(size_t block, std::span<const float> values) const {
  Values room;  // NOLINT(*-member-init): written before it is read
  return exact::exponent_of(prepared(block, values, room));
}

std::span<const float> GradientSum::prepared(size_t block, std::span<const float> values,
                                             Values& room) const {
  if (!is_rotated(block)) return values;
  const auto copy = std::span(room).first(values.size());
  std::ranges::copy(values, copy.begin());
  exact::rotate(copy, *rotation_, layout_.blocks()[block].begin);
  return copy;
}

exact::Stochastic GradientSum::rounding_of(int lane, size_t block) const {
  exact::Stochastic rounding(rounding_.seed, step_, lane);
  rounding.first = layout_.blocks()[block].begin;
  return rounding;
}

uint8_t GradientSum::to_fixed(int lane, size_t block, std::span<const float> values,
                              int32_t* q) const {
  const auto format = this->format(block);
  const int scale = exact::scale_for(exponents_[block], format);
  const uint8_t exponent =
      rounding_.stochastic ? exact::store_block(values, scale, format, rounding_of(lane, block), q)
                           : exact::store_block(values, scale, format, q);
  if (lies() && block == 0) q[0] ^= 1;
  return exponent;
}

void GradientSum::hash_blocks(int lane, size_t first, size_t last, const float* gradient) {
  std::array<int32_t, exact::kBlockSize> q;  // NOLINT(*-member-init): written before it is read
  Values room;                               // NOLINT(*-member-init): written before it is read
  const size_t begin = layout_.blocks()[first].begin;
  for (size_t b = first; b < last; ++b) {
    const auto& where = layout_.blocks()[b];
    const auto values = prepared(b, {gradient + (where.begin - begin), where.size}, room);
    const uint8_t exponent = to_fixed(lane, b, values, q.data());
    note(other_, b, exponent, std::span(q).first(where.size));
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
  if (lane == other_.lane) return hash_blocks(lane, first, last, gradient);
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
  Values room;  // NOLINT(*-member-init): written before it is read
  const auto values = prepared(block, {gradient, where.size}, room);
  const size_t place = place_of(group_of(lane));
  const bool first = added_in_[place][block] != round_;
  uint8_t exponent = 0;
  switch (mode_) {
    case Mode::kExact:
      exponent = add_exact(lane, block, values, first, ints(place, where.begin));
      break;
    case Mode::kNative:
      exponent = first ? exact::store_floats(values, floats(where.begin))
                       : exact::add_floats(values, floats(where.begin));
      break;
    case Mode::kDry:
      exponent = exact::exponent_of(values);
      break;
  }
  added_in_[place][block] = round_;
  seen_[block] = std::max(seen_[block], exponent);
  if (exponent != exact::kNotFinite) return;
  int64_t none = -1;
  not_finite_[static_cast<size_t>(lane)].compare_exchange_strong(none, static_cast<int64_t>(tensor),
                                                                 std::memory_order_relaxed);
}

uint8_t GradientSum::add_exact(int lane, size_t block, std::span<const float> values, bool first,
                               int32_t* sum) {
  if (first) {
    const uint8_t exponent = to_fixed(lane, block, values, sum);
    if (lane == own_.lane) note(own_, block, exponent, {sum, values.size()});
    return exponent;
  }
  if (lane == own_.lane || lies()) {
    std::array<int32_t, exact::kBlockSize> q;  // NOLINT(*-member-init): written before it is read
    const uint8_t exponent = to_fixed(lane, block, values, q.data());
    if (lane == own_.lane) note(own_, block, exponent, std::span(q).first(values.size()));
    for (size_t i = 0; i < values.size(); ++i) sum[i] += q[i];
    return exponent;
  }
  const auto format = this->format(block);
  const int scale = exact::scale_for(exponents_[block], format);
  if (!rounding_.stochastic) return exact::add_block(values, scale, format, sum);
  return exact::add_block(values, scale, format, rounding_of(lane, block), sum);
}

void GradientSum::settle(Bucket& bucket, State state) {
  bucket.state.store(state, std::memory_order_release);
  bucket.state.notify_all();
}

void GradientSum::flush() {
  for (auto& bucket : buckets_) {
    if (bucket->state.load(std::memory_order_relaxed) == State::kComplete) continue;
    for (size_t place = 0; place < std::max(own_groups_.size(), size_t{1}); ++place) {
      for (size_t b = bucket->first; b < bucket->last; ++b) {
        if (added_in_[place][b] == round_ || mode_ == Mode::kDry) continue;
        const auto& where = layout_.blocks()[b];
        std::memset(ints(place, where.begin), 0, where.size * sizeof(int32_t));
      }
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
  return {ints(0, begin), size};
}

std::span<float> GradientSum::float_bucket(size_t bucket) {
  const auto [begin, size] = extent(bucket);
  return {floats(begin), size};
}

std::span<const float> GradientSum::read_group(int group, size_t block,
                                               std::span<float> scratch) const {
  const auto& where = layout_.blocks()[block];
  if (mode_ == Mode::kNative) return {floats(where.begin), where.size};
  exact::to_float({ints(place_of(group), where.begin), where.size},
                  exact::scale_for(exponents_[block], format(block)), scratch.data());
  if (is_rotated(block)) exact::rotate_back(scratch.first(where.size), *rotation_, where.begin);
  return scratch.first(where.size);
}

}  // namespace muster::train
