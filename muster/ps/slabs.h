// Memory for rows and their index: pieces of a power of two bytes, cut from slabs of kHugePage.
//
// A server has thousands of shards that all grow a little. If each had large buffers of its own,
// most of them would be empty; if each had small ones from the heap, rows would lie in small pages,
// and a look-up would miss the TLB. So pieces are small, and slabs are huge pages.
//
// What is freed is used again, for pieces of its size or smaller ones, and, at the limit, for
// larger ones if all of such a piece is free. Pieces larger than kHugePage are given back to the
// system. One thread uses it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "muster/base/memory.h"

namespace muster::ps {

class Slabs {
 public:
  static constexpr size_t kSmallest = 1024;

  // At most so many bytes. Without a limit a process that takes too much is killed by the system,
  // which does not say no before.
  explicit Slabs(size_t most = std::numeric_limits<size_t>::max()) : most_(most) {}
  ~Slabs();
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  // `bytes`: a power of two, kSmallest at least. Zeroed, aligned to kSmallest. Null: that would be
  // more than the limit.
  std::byte* allocate(size_t bytes);
  void free(std::byte* piece, size_t bytes);

  // In slabs and large pieces, and of these in pieces that are in use.
  size_t reserved() const { return reserved_; }
  size_t used() const { return used_; }

 private:
  struct Region {
    std::byte* data;
    size_t bytes;
  };
  std::byte* map(size_t bytes);
  std::byte* new_slab();
  std::byte* take_free(size_t bytes);
  void keep(std::byte* piece, size_t bytes);
  void merge_free();

  static constexpr size_t kSizes = 22;  // 2^21 is a slab
  const size_t most_;
  std::array<std::vector<std::byte*>, kSizes> free_;  // by the logarithm of their size
  std::vector<Region> regions_;                       // from which slabs are cut, and large pieces
  std::byte* next_slab_ = nullptr;                    // of the last region
  size_t slabs_left_ = 0;
  size_t reserved_ = 0;
  size_t used_ = 0;
  bool freed_ = false;  // something, since merge_free()
};

}  // namespace muster::ps
