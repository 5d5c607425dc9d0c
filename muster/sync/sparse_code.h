// A few of many values, each with two bits: what a replica of sparseloco sends.
//
// Of each block of 4,096 values the `keep` largest by magnitude are sent (largest.h), of a shorter
// one correspondingly fewer, at least one. All that are sent of a tensor share four values, its
// book: with m their mean and s their standard deviation, they are put into four bins, with borders
// at m - 1.5 s, m and m + 1.5 s, and the mean of a bin stands for all in it. Sarfi et al.,
// arXiv 2508.15706, has this code.
//
// On the wire, little-endian:
//
//   4 floats     for each tensor: its book
//   2 bits       for each value: which of the four; in order, filled up to a whole byte
//   gaps         for each value: its place in its block, as a RiceCode (bit_stream.h)
//
// With keep 64 that is 9.5 bits for each value sent: 1/216 of what the floats would take.
//
// Pure: safe for concurrent use, as long as each call has a Sparse of its own, or, with select(), a
// block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "muster/base/isa.h"
#include "muster/exact/block_layout.h"

namespace muster::sync {

// Some values of a buffer.
struct Sparse {
  using Book = std::array<float, 4>;
  std::vector<uint16_t> places;  // in the block, ascending; block by block
  std::vector<uint8_t> codes;    // 0 to 3: which one of the tensor's book
  std::vector<Book> books;       // by tensor
  bool operator==(const Sparse&) const = default;
};

class SparseCode {
 public:
  // Of the first `tensors` tensors of a layout, which must outlive this. `keep`: 1 to kBlockSize.
  SparseCode(const exact::BlockLayout& layout, size_t tensors, int64_t keep);

  size_t blocks() const { return first_.size() - 1; }
  // How many values are sent in all.
  size_t values() const { return first_.back(); }
  // With room for them.
  Sparse empty() const;

  // First the places, block by block, in any order; `values` has the whole buffer.
  void select(size_t block, std::span<const float> values, Sparse& sparse,
              Isa isa = best_isa()) const;
  // Then the books and codes.
  void quantise(std::span<const float> values, Sparse& sparse) const;
  // What was sent is subtracted.
  void subtract(const Sparse& sparse, std::span<float> values) const;

  // Of what write() can append.
  size_t largest_size() const;
  // Appends.
  void write(const Sparse& sparse, std::vector<std::byte>& out) const;
  // Reads from the beginning of `from`, and removes that. False if it is not in the format; the
  // result is then undefined. Books may have any value.
  bool read(std::span<const std::byte>& from, Sparse& sparse) const;

  // For a block: takes rate times the mean of what these sent from the weights. An element's mean
  // is over those who sent it. `weights` has the whole buffer. Whether all that changed is finite.
  bool merge(size_t block, std::span<const Sparse> senders, float rate,
             std::span<float> weights) const;

 private:
  std::span<const uint16_t> places_of(size_t block, const Sparse& sparse) const {
    return std::span(sparse.places).subspan(first_[block], first_[block + 1] - first_[block]);
  }
  const exact::Block& where(size_t block) const { return layout_.blocks()[block]; }

  const exact::BlockLayout& layout_;
  const size_t tensors_;
  std::vector<size_t> first_;  // by block: its first value; one more than there are blocks
};

}  // namespace muster::sync
