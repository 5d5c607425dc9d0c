// Which part of a flat buffer is which tensor, and which block.
//
// Weights, gradients, their fixed-point sums and every state buffer of its optimizer are flat
// buffers of one shape, so that element i of each belongs together and one BlockLayout describes
// them all. Tensors follow each other in order, each starting on a 64-byte line; the few elements
// in between are padding: in no block, never read, never written.
//
// A block is at most kBlockSize elements of one tensor. It is the unit of everything that is
// decided about many numbers at once (a fixed-point scale, an exponent, a partial norm) and of
// everything that is handed to a thread: 16 KiB of floats, so that a block and its sum stay in a
// core's first cache. Blocks are a property of the model alone, not of machines, threads or
// buckets; bits depend on them, so kBlockSize is part of the format of a run and must never change.
//
// Tensors that never change (frozen ones) are in the flat buffer of the weights but have no blocks,
// so nothing is summed, updated or decided for them. They stand behind all others: buffers of sums
// and of optimizer state end where the blocks end.
//
// Immutable after construction: safe for concurrent use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster::exact {

inline constexpr size_t kBlockSize = 4096;  // elements
inline constexpr size_t kAlign = 16;        // elements: 64 bytes of float or int32

struct Block {
  uint32_t tensor;
  size_t begin;  // in the flat buffer
  size_t size;   // 1 to kBlockSize
  bool operator==(const Block&) const = default;
};

class BlockLayout {
 public:
  // Sizes in elements. A tensor of size 0 is allowed and has no blocks. `frozen`: by tensor; empty:
  // none is.
  explicit BlockLayout(std::span<const size_t> tensor_sizes, const std::vector<bool>& frozen = {});

  // Of the flat buffer, padding included; a multiple of kAlign.
  size_t elements() const { return elements_; }
  // Of its first part, which has all blocks.
  size_t block_elements() const { return block_elements_; }

  size_t tensors() const { return tensors_.size() - 1; }
  size_t tensor_begin(size_t tensor) const { return tensors_.at(tensor).begin; }
  size_t tensor_size(size_t tensor) const { return tensors_.at(tensor).size; }

  // In order of their place in the buffer.
  std::span<const Block> blocks() const { return blocks_; }
  // Blocks of a tensor are [first_block(tensor), first_block(tensor + 1)); tensor may be tensors().
  size_t first_block(size_t tensor) const { return tensors_.at(tensor).first_block; }

 private:
  struct Tensor {
    size_t begin;
    size_t size;
    size_t first_block;
  };
  size_t elements_ = 0;
  size_t block_elements_ = 0;
  std::vector<Tensor> tensors_;  // one more than there are: the last marks the end
  std::vector<Block> blocks_;
};

// A block's part of a flat buffer.
template <typename T>
std::span<T> part(std::span<T> flat, const Block& block) {
  return flat.subspan(block.begin, block.size);
}

}  // namespace muster::exact
