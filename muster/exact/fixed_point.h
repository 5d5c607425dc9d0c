// Sums that do not care about order.
//
// Floating-point addition rounds, so the sum of the lanes' gradients would depend on who adds what
// first: on the number of workers, the bucket size, the ring. Here each lane turns its gradient
// into int32 fixed point and integers are added. Integer addition is associative and commutative:
// any order and grouping of lanes gives the same bits.
//
// One block (block_layout.h) has one scale, 2^s. A lane contributes q(g) = rint(g * 2^s), ties to
// even. Let k = lane_bits(lanes) = floor(log2((2^31 - 1) / lanes)).
//
// A lane FITS if each |g| * 2^s < 2^k; otherwise, or if some g is not finite, the block has
// overflowed and its sum must not be used. Since 2^(k-s) is a power of two, whether a lane fits
// depends on the exponent of its largest |g| alone: exponent <= largest_exponent(s, lanes). So the
// one exponent byte per block that travels in a step's commit tells every worker the same thing.
//
// No sum wraps. A lane that fits has |g * 2^s| < 2^k, so |q(g)| <= 2^k (rounding is monotone and
// 2^k is an integer). At most `lanes` lanes are added, so every partial sum is at most
// lanes * 2^k <= lanes * ((2^31 - 1) / lanes) = 2^31 - 1 in magnitude. A lane that does not fit is
// clamped to +-2^k (NaN: +2^k), so this holds for it as well.
//
// q(g) is the integer nearest to the real number g * 2^s. Multiplying a float by 2^s is exact,
// unless the product is below 2^-126 (then it is rounded, but to something whose rint is 0, as is
// that of the true product) or above the largest float (then the lane does not fit).
//
// Error. Each lane is off by at most 1/2 unit of 2^-s, so for lanes that fit
//     |sum * 2^-s - (real sum of the g)| <= lanes/2 * 2^-s                           (1)
// for each element, whatever its size. With s = scale_for(e, lanes), e the exponent byte of the
// block's largest |g| over all lanes, M, and s not clamped: 2^-s = 2^(e-123-k), M >= 2^(e-127) and
// 2^-k < 2 * lanes / (2^31 - 1), so (1) is at most
//     lanes * 2^(3-k) * M  <  lanes^2 * 2^-26.9999 * M                               (2)
// (lanes^2 * 2^-27 * M for a power of two): at 8 lanes 2^-21 of the largest element in the worst
// case, where every lane errs the same way. If the scale was made for an exponent d higher than
// what came, (2) grows by 2^d. to_float adds one rounding to float, 2^-24 of the result.
//
// Stochastic rounding. To nearest, an element below half a unit is rounded to 0 in every lane, and
// the sum has nothing of it however many lanes there are: with 4,096 lanes the unit is 2^-15 of the
// largest gradient of the block, and everything below 2^-16 of it is lost. With Stochastic a lane
// rounds x = g * 2^s up or down at random, away from zero with the probability |x - trunc(x)| (to
// within 2^-24), so that the expectation of q(g) is x. The random numbers are a function of (seed,
// step, lane, element), so the sum is as reproducible as the other. What is said above holds, save
// that a lane is off by up to one unit: (1) and (2) are twice as large in the worst case. But the
// errors of lanes are independent and have the mean 0: the deviation of a sum's error is at most
// sqrt(lanes) / 2 units.
//
// Few bits. On a slow link a lane may be given b = 16, 8, 4 or 2 bits instead of all that the sum
// has room for (SumFormat::bits). Then k = b - 1, a lane adds at most 2^k - 1 units, always with
// stochastic rounding. There are no spare bits: the scale is made from the exponents of the values
// themselves, so that they just fit. (The largest may be clamped by less than one unit: k bits hold
// 2^k - 1.) "Lanes" are then whatever is added: groups of lanes, or replicas. The unit is large:
// the deviation of a sum's error is up to sqrt(lanes) / 2 units of 2^(1-b) of the largest value,
// which averages out over steps because its mean is 0.
//
// Scales are clamped to +-kMaxScale so that 2^s and 2^-s are both normal floats. Below, this never
// happens (lanes <= kMaxLanes), save for 2 bits and values of 2^127, which are clamped; above, it
// happens to blocks whose largest |g| is under 2^-100 or so: for these (1) still holds, and says
// that the error is at most lanes * 2^-127, half the smallest normal float per lane.
//
// These functions assume that the thread rounds to nearest (the default of C++). Whether it flushes
// subnormals (base/float_mode.h) matters only to gradients below 2^-126, of blocks that have no
// larger ones: they are then zero. All of them are pure or touch only the memory passed in: safe
// for concurrent use.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "muster/base/isa.h"
#include "muster/exact/block_layout.h"

namespace muster::exact {

inline constexpr int kMaxLanes = 1 << 16;
inline constexpr int kMaxScale = 126;
inline constexpr int kSpareBits = 3;
// Exponent byte: the 8 exponent bits of the largest |g| of a block, as a float has them.
inline constexpr uint8_t kNothing = 0;      // all zero (or subnormal)
inline constexpr uint8_t kNotFinite = 255;  // an infinity or a NaN

// How the gradients of lanes are written in a sum.
struct SumFormat {
  // All the bits there are room for. NOLINTNEXTLINE(google-explicit-constructor): a number of lanes
  // says it all
  SumFormat(int lanes) : SumFormat(lanes, kAllBits) {}
  // `bits` of each lane: kAllBits, 16, 8, 4 or 2.
  SumFormat(int lanes, int bits);
  static constexpr int kAllBits = 32;
  bool few() const { return bits != kAllBits; }
  int lanes;
  int bits;
};

// With all bits floor(log2((2^31 - 1) / lanes)), else bits - 1.
int lane_bits(const SumFormat& format);
// What a lane may add: with all bits 2^lane_bits, that is (2^31 - 1) / lanes, rounded down to a
// power of two; else one less than 2^lane_bits.
int64_t lane_bound(const SumFormat& format);
// The largest s in [-kMaxScale, kMaxScale] at which every value with this exponent byte fits, and
// with all bits also every value up to 8 times (kSpareBits) as large. Not for kNotFinite.
int scale_for(uint8_t exponent, const SumFormat& format);
// A block fits scale s if and only if its exponent byte is at most this, 0 to 254.
uint8_t largest_exponent(int s, const SumFormat& format);

// Whether a block whose largest exponent byte was `seen` fits the scale made from `used`.
inline bool fits(uint8_t used, uint8_t seen, const SumFormat& format) {
  return seen <= largest_exponent(scale_for(used, format), format);
}

// The exponent byte of a block: for the dry pass before the first step.
uint8_t exponent_of(std::span<const float> g, Isa isa = best_isa());

// Rounds at random instead of to nearest, with numbers of its own for each (seed, step, lane) and,
// by `first`, each element. Cheap to make: one hash.
struct Stochastic {
  Stochastic(uint64_t seed, int64_t step, int lane);
  std::array<uint32_t, 2> key;
  uint64_t first = 0;  // the place of g[0] in the buffer of all elements
};
// Both return the exponent byte of this lane's g; above largest_exponent(s, format), which
// kNotFinite is, the sum must not be used. The first lane of a block: sum = q(g). `sum` has
// g.size() elements, and may not overlap g.
uint8_t store_block(std::span<const float> g, int s, const SumFormat& format, int32_t* sum,
                    Isa isa = best_isa());
uint8_t store_block(std::span<const float> g, int s, const SumFormat& format,
                    const Stochastic& rounding, int32_t* sum, Isa isa = best_isa());
// Each further lane: sum += q(g).
uint8_t add_block(std::span<const float> g, int s, const SumFormat& format, int32_t* sum,
                  Isa isa = best_isa());
uint8_t add_block(std::span<const float> g, int s, const SumFormat& format,
                  const Stochastic& rounding, int32_t* sum, Isa isa = best_isa());
// out = sum * 2^-s, correctly rounded. Infinite only where the sum is beyond the largest float.
void to_float(std::span<const int32_t> sum, int s, float* out, Isa isa = best_isa());

// Which scales a step uses is decided before it begins, by exponents kept for each block ("used")
// and replaced after each step by what the commit has shown ("seen": the largest over all lanes).
//
// The first step. `seen` comes from a dry pass. A block that has shown nothing but zeros (rows of
// an embedding that the first batch does not hit, layers behind a gate initialised to zero) takes
// the largest exponent of its tensor, or else of the whole model: with a scale made for zeros, its
// first gradient would surely overflow and cost a step.
std::vector<uint8_t> first_exponents(const BlockLayout& layout, std::span<const uint8_t> seen);
// After a step that fitted: what was seen, if it is larger; else `used`, less one bit every
// kFallEvery steps.
//
// Scales follow growth at once and decline slowly, because gradients come in bursts: late in
// training most batches are easy, and an ordinary hard one is a hundred times larger. Following
// every dip would have it overflow the spare bits and cost a redone step (168 of 1,407 steps of
// LeNet on MNIST with a bit per step, none like this), while a few bits too much cost nothing that
// matters: what is rounded off is small against the gradients that move the weights.
//
// A scale that is more than most_excess above what was seen (is_coarse) is another matter. After a
// spike (a bad sample, a step before the gradients are clipped) it would take hundreds of steps
// to come back. As most blocks are too coarse then (`spike`: at least a quarter of those that
// have a gradient), they fall at once: one step after a spike of any size is lost, and the next has
// kLeastBits again. If it is only some blocks, they fall a bit every kFallCoarse steps: a unit that
// is active for nothing but samples of which the model is certain has gradients of 2^-60 in some
// batches and ordinary ones in the next. (Falling at once, DiLoCo had 6 of 10 steps of the mlp
// redone; by 2 bits a step, 1 of 20.)
//
// A block of zeros says nothing about the next gradient and keeps its exponent (else rare rows of
// an embedding would overflow whenever they are hit), and so does one that was not finite, if the
// job skips such steps.
inline constexpr int kFallEvery = 32;
inline constexpr int kFallCoarse = 4;
uint8_t next_exponent(uint8_t used, uint8_t seen, int64_t step, const SumFormat& format,
                      bool spike = false);
bool is_coarse(uint8_t used, uint8_t seen, const SumFormat& format);
// Whether it says something about the gradient.
inline bool shows_gradient(uint8_t seen) { return seen != kNothing && seen != kNotFinite; }
// By how many bits the scale of a block may stay too coarse for what was seen: so many that the
// largest gradient still has kLeastBits (below), but never less than kLeastExcess.
inline constexpr int kLeastBits = 12;
inline constexpr int kLeastExcess = 8;
int most_excess(const SumFormat& format);
// How many bits of a block's largest gradient (exponent byte `seen`, not kNothing or kNotFinite)
// lie above the rounding unit of the scale made from `used`: lane_bits - kSpareBits if the scale
// was made for just this exponent, 0 if the whole gradient is below the unit.
int bits_above_unit(uint8_t used, uint8_t seen, const SumFormat& format);
// After a step in which some block overflowed (none not finite): exponents to redo it with. Blocks
// keep theirs or rise to what was seen. The redone step fits: exponents are taken from the
// gradients themselves, not from their clamped sums, and these come out the same again, with
// kSpareBits to go.
uint8_t redo_exponent(uint8_t used, uint8_t seen);

}  // namespace muster::exact
