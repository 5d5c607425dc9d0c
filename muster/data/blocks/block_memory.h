// Memory that blocks are read into.
//
// Blocks come and go all the time, on several threads, all of about the same size. From the heap,
// each thread would take its own from an arena of its own, and gaps between blocks of slightly
// different lengths would add up to a share of `data.memory` that nobody counts. So a block has
// pages of its own, and the next one of about its length takes them over, without page faults.
// Small blocks are left to the heap: a process may have some 65,000 mappings.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace muster::data {

class BlockMemory;

// Bytes of a BlockMemory, given back to it on destruction. Not cleared, because they are read into.
class BlockBytes {
 public:
  BlockBytes(BlockBytes&& other) noexcept
      : memory_(std::move(other.memory_)),
        piece_(std::exchange(other.piece_, {})),
        on_heap_(other.on_heap_),
        size_(std::exchange(other.size_, 0)) {}
  BlockBytes(const BlockBytes&) = delete;
  BlockBytes& operator=(const BlockBytes&) = delete;
  BlockBytes& operator=(BlockBytes&&) = delete;
  ~BlockBytes();

  std::span<std::byte> span() { return {piece_.data(), size_}; }
  std::span<const std::byte> span() const { return {piece_.data(), size_}; }

 private:
  friend class BlockMemory;
  BlockBytes(std::shared_ptr<BlockMemory> memory, std::span<std::byte> piece, bool on_heap,
             size_t size)
      : memory_(std::move(memory)), piece_(piece), on_heap_(on_heap), size_(size) {}

  std::shared_ptr<BlockMemory> memory_;
  std::span<std::byte> piece_;  // empty: moved from
  bool on_heap_;                // else the piece is whole pages
  size_t size_;
};

// Lives until the last of its bytes is given back. Safe for concurrent use.
class BlockMemory : public std::enable_shared_from_this<BlockMemory> {
 public:
  // Bytes from which on a block has pages of its own.
  static constexpr size_t kLeastOfPages = size_t{256} << 10;
  // Pieces that are kept for the next block.
  static constexpr size_t kMostFree = 4;

  // These hold at most so many bytes.
  static std::shared_ptr<BlockMemory> make(size_t most_free_bytes);
  ~BlockMemory();
  BlockMemory(const BlockMemory&) = delete;
  BlockMemory& operator=(const BlockMemory&) = delete;

  // Throws std::bad_alloc when there is no memory.
  BlockBytes take(size_t size);

 private:
  friend class BlockBytes;
  explicit BlockMemory(size_t most_free_bytes);
  void give_back(std::span<std::byte> piece);

  const size_t most_free_bytes_;
  std::mutex mutex_;
  std::vector<std::span<std::byte>> free_;  // the oldest first
  size_t free_bytes_ = 0;
};

}  // namespace muster::data
