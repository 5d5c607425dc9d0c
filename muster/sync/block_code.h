// Codes for a block of a gradient that lose something: what is sent in its place by the strategies
// topk, threshold, onebit. What was not sent is left, and added to the next gradient ("error
// feedback": Seide et al., Interspeech 2014; Karimireddy et al., arXiv 1901.09847).
//
//   topk       the sync.keep largest of 4,096 by magnitude (largest.h); of a shorter block
//              correspondingly fewer, at least one. Each is sent as its sign and one of two
//              magnitudes, the means of those below and not below the mean of all that are sent.
//              Aji and Heafield, arXiv 1704.05021; Lin et al., arXiv 1712.01887, whose momentum
//              correction and warm-up are not here
//   threshold  those larger than sync.threshold times the root mean square of the block, or the
//              largest, if there is none: each as its sign, with one magnitude for all, their mean.
//              Strom, Interspeech 2015, has one threshold for the whole model, and sends that
//   onebit     the sign of every element, and two values: the mean of those below zero, and that of
//              the others. Seide et al., 1-bit stochastic gradient descent, Interspeech 2014
//
// On the wire, little-endian: the magnitudes as floats; threshold: how many are sent, 16 bits; then
// a bit stream of signs (and which magnitude), and one of places (bit_stream.h).
//
// Sums are in double and in a fixed order, so that a block gives the same bits everywhere.
//
// Pure: safe for concurrent use.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "muster/base/isa.h"
#include "muster/config/job.h"

namespace muster::sync {

// Of blocks of at most exact::kBlockSize values.
class BlockCode {
 public:
  virtual ~BlockCode() = default;
  // Appends what is sent of these values, which must be finite, and subtracts it from them.
  virtual void encode(std::span<float> values, std::vector<std::byte>& out) const = 0;
  // Adds to `sum` what encode() has written for a block of its size. False if `from` is not that;
  // then the sum is undefined.
  virtual bool add(std::span<const std::byte> from, std::span<float> sum) const = 0;
  // The most that encode() appends for so many values.
  virtual size_t largest_size(size_t values) const = 0;
};

// That of sync.strategy; nullptr if it has none.
std::unique_ptr<BlockCode> make_block_code(const config::SyncOptions& sync, Isa isa = best_isa());

}  // namespace muster::sync
