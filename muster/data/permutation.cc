#include "muster/data/permutation.h"

#include <bit>

#include "muster/base/check.h"

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
// Permutations that serve a few values, of which a job has millions, make do with less.
constexpr int kRoundsKeyed = 10;
constexpr uint64_t kTiny = 64;

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

// The round keys are left to the others: most of them are never used, and clearing them would cost
// as much as a few rounds.
// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
Permutation::Permutation(uint64_t n) : n_(n) {
  static_assert(kMaxRounds >= kRoundsSmall && kMaxRounds >= kRoundsLarge &&
                kMaxRounds >= kRoundsKeyed);
  MUSTER_CHECK(n >= 1 && n <= kMaxSize, "a permutation has from 1 to 2^40 positions");
  // The low half takes half of the bits, rounded down, but at least one: with b = 1 a round could
  // only rotate.
  const int bits = std::bit_width(n) - 1;
  low_bits_ = n == 1 ? 0 : bits < 2 ? 1 : bits / 2;
  low_mask_ = (uint64_t{1} << low_bits_) - 1;
  high_size_ = (n + low_mask_) >> low_bits_;
  rounds_ = n == 1 ? 0 : n < kSmall ? kRoundsSmall : kRoundsLarge;
}

Permutation::Permutation(uint64_t n, const RandomStream& keys) : Permutation(n) {
  for (size_t i = 0; i < static_cast<size_t>(rounds_); ++i) {
    const auto bits = keys.block(i);
    keys_[2 * i] = uint64_t{bits[1]} << 32 | bits[0];
    keys_[2 * i + 1] = uint64_t{bits[3]} << 32 | bits[2];
  }
}

Permutation::Permutation(uint64_t n, uint64_t key) : Permutation(n) {
  if (n >= kTiny && n < kSmall) rounds_ = kRoundsKeyed;
  // SplitMix64: a counter with a step of its own, put through the mixer.
  for (size_t i = 0; i < 2 * static_cast<size_t>(rounds_); ++i) {
    keys_[i] = mix(key += 0xBF58476D1CE4E5B9U, 0x94D049BB133111EBU);
  }
}

uint64_t Permutation::forward(uint64_t x) const {
  uint64_t high = x >> low_bits_;
  uint64_t low = x & low_mask_;
  for (size_t i = 0; i < 2 * static_cast<size_t>(rounds_); i += 2) {
    high += scale(mix(low, keys_[i]), high_size_);
    if (high >= high_size_) high -= high_size_;
    low = (low + mix(high, keys_[i + 1])) & low_mask_;
  }
  return high << low_bits_ | low;
}

uint64_t Permutation::backward(uint64_t x) const {
  uint64_t high = x >> low_bits_;
  uint64_t low = x & low_mask_;
  for (size_t i = 2 * static_cast<size_t>(rounds_); i > 0; i -= 2) {
    low = (low - mix(high, keys_[i - 1])) & low_mask_;
    high += high_size_ - scale(mix(low, keys_[i - 2]), high_size_);
    if (high >= high_size_) high -= high_size_;
  }
  return high << low_bits_ | low;
}

uint64_t Permutation::operator()(uint64_t position) const {
  MUSTER_CHECK(position < n_, "a position lies within the permutation");
  uint64_t x = forward(position);
  while (x >= n_) [[unlikely]]
    x = forward(x);
  return x;
}

uint64_t Permutation::position_of(uint64_t value) const {
  MUSTER_CHECK(value < n_, "a value lies within the permutation");
  uint64_t x = backward(value);
  while (x >= n_) [[unlikely]]
    x = backward(x);
  return x;
}

}  // namespace muster::data
