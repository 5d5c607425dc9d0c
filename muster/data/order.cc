#include "muster/data/order.h"

#include <bit>

#include "muster/base/check.h"
#include "muster/base/random.h"

namespace muster::data {
namespace {

// Rounds, each of which changes both halves. Three pairs of Feistel half rounds already cannot be
// told from random on large halves (Luby and Rackoff); six leave a margin at next to no cost. A
// tiny network mixes slowly, because a round draws only a few random bits: for n = 7 the bias of
// single permutations is plain to see after 8 rounds and below what 2 million seeds can show after
// 12. Those sizes get 16.
constexpr int kRoundsSmall = 16;
constexpr int kRoundsLarge = 6;
constexpr uint64_t kSmall = 4096;

// A strong mixer of 64 bits: two multiplications, each followed by folding the high half down. The
// key goes in first, so that keys that differ give unrelated functions of x.
inline uint64_t mix(uint64_t x, uint64_t key) {
  x = (x ^ key) * 0x9E3779B97F4A7C15U;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93U;
  x ^= x >> 32;
  return x;
}

// Uniform in [0, n) for random bits; n is at most 2^22, so the bias is below 2^-42.
inline uint64_t scale(uint64_t bits, uint64_t n) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * n) >> 64);
}

}  // namespace

Order::Order(uint64_t seed, uint64_t n) : seed_(seed), n_(n) {
  MUSTER_CHECK(n >= 1 && n <= kMaxSize, "an order has from 1 to 2^40 positions");
  // The low half takes half of the bits, rounded down, but at least one: with b = 1 a round could
  // only rotate.
  const int bits = std::bit_width(n) - 1;
  low_bits_ = n == 1 ? 0 : bits < 2 ? 1 : bits / 2;
  const uint64_t low_size = uint64_t{1} << low_bits_;
  high_size_ = (n + low_size - 1) >> low_bits_;
  rounds_ = n < kSmall ? kRoundsSmall : kRoundsLarge;
}

Order::Pass::Pass(uint64_t seed, uint64_t pass, const Order& order)
    : n_(order.n_),
      high_size_(order.high_size_),
      low_mask_((uint64_t{1} << order.low_bits_) - 1),
      low_bits_(order.low_bits_),
      rounds_(order.rounds_),
      keys_{} {
  static_assert(kMaxRounds >= kRoundsSmall && kMaxRounds >= kRoundsLarge);
  const RandomStream stream(seed, Purpose::kOrder, pass);
  for (size_t i = 0; i < static_cast<size_t>(rounds_); ++i) {
    const auto bits = stream.block(i);
    keys_[2 * i] = uint64_t{bits[1]} << 32 | bits[0];
    keys_[2 * i + 1] = uint64_t{bits[3]} << 32 | bits[2];
  }
}

uint64_t Order::Pass::forward(uint64_t x) const {
  uint64_t high = x >> low_bits_;
  uint64_t low = x & low_mask_;
  for (size_t i = 0; i < 2 * static_cast<size_t>(rounds_); i += 2) {
    high += scale(mix(low, keys_[i]), high_size_);
    if (high >= high_size_) high -= high_size_;
    low = (low + mix(high, keys_[i + 1])) & low_mask_;
  }
  return high << low_bits_ | low;
}

uint64_t Order::Pass::backward(uint64_t x) const {
  uint64_t high = x >> low_bits_;
  uint64_t low = x & low_mask_;
  for (size_t i = 2 * static_cast<size_t>(rounds_); i > 0; i -= 2) {
    low = (low - mix(high, keys_[i - 1])) & low_mask_;
    high += high_size_ - scale(mix(low, keys_[i - 2]), high_size_);
    if (high >= high_size_) high -= high_size_;
  }
  return high << low_bits_ | low;
}

uint64_t Order::Pass::operator()(uint64_t position) const {
  MUSTER_CHECK(position < n_, "a position lies within the pass");
  uint64_t x = forward(position);
  while (x >= n_) [[unlikely]]
    x = forward(x);
  return x;
}

uint64_t Order::Pass::position_of(uint64_t index) const {
  MUSTER_CHECK(index < n_, "an index lies within the data");
  uint64_t x = backward(index);
  while (x >= n_) [[unlikely]]
    x = backward(x);
  return x;
}

}  // namespace muster::data
