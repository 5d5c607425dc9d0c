#include "muster/data/blocks/block_memory.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace muster::data {
namespace {

constexpr size_t kPage = 4096;

// Whether a block of that size may have this piece: pages of it that are not used stay resident.
bool suits(std::span<const std::byte> piece, size_t bytes) {
  return piece.size() >= bytes && piece.size() - bytes <= bytes / 32;
}

// Else the shadow of the address sanitizer would stay for what is mapped there next.
void unmap(std::span<std::byte> piece) {
  ASAN_UNPOISON_MEMORY_REGION(piece.data(), piece.size());
  // The process may have too many mappings to divide one: then at least the memory is given back.
  if (::munmap(piece.data(), piece.size()) != 0) {
    ::madvise(piece.data(), piece.size(), MADV_DONTNEED);
  }
}

// Only the first `size` bytes may be touched.
std::span<std::byte> only(std::span<std::byte> piece, size_t size) {
  ASAN_UNPOISON_MEMORY_REGION(piece.data(), size);
  ASAN_POISON_MEMORY_REGION(piece.data() + size, piece.size() - size);
  return piece;
}

}  // namespace

BlockBytes::~BlockBytes() {
  if (on_heap_) {
    delete[] piece_.data();
  } else if (!piece_.empty()) {
    memory_->give_back(piece_);
  }
}

std::shared_ptr<BlockMemory> BlockMemory::make(size_t most_free_bytes) {
  return std::shared_ptr<BlockMemory>(new BlockMemory(most_free_bytes));
}

BlockMemory::BlockMemory(size_t most_free_bytes) : most_free_bytes_(most_free_bytes) {
  free_.reserve(kMostFree);  // so that giving back cannot fail
}

BlockMemory::~BlockMemory() { std::ranges::for_each(free_, unmap); }

BlockBytes BlockMemory::take(size_t size) {
  if (size >= kLeastOfPages) {
    const size_t bytes = (size + kPage - 1) / kPage * kPage;
    {
      const std::lock_guard lock(mutex_);
      // The newest first: it is more likely to be in the processor's cache.
      const auto found = std::find_if(free_.rbegin(), free_.rend(),
                                      [&](const auto& piece) { return suits(piece, bytes); });
      if (found != free_.rend()) {
        const auto piece = *found;
        free_.erase(std::next(found).base());
        free_bytes_ -= piece.size();
        return {shared_from_this(), only(piece, size), false, size};
      }
    }
    void* const data =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data != MAP_FAILED) {
      const std::span piece(static_cast<std::byte*>(data), bytes);
      return {shared_from_this(), only(piece, size), false, size};
    }
  }
  auto heap = std::make_unique_for_overwrite<std::byte[]>(size);
  return {shared_from_this(), {heap.release(), size}, true, size};
}

void BlockMemory::give_back(std::span<std::byte> piece) {
  if (piece.size() > most_free_bytes_) return unmap(piece);
  only(piece, 0);
  // The new one is kept rather than the old ones.
  std::array<std::span<std::byte>, kMostFree> leaving;
  size_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    while (!free_.empty() &&
           (free_.size() == kMostFree || free_bytes_ + piece.size() > most_free_bytes_)) {
      free_bytes_ -= free_.front().size();
      leaving[count++] = free_.front();
      free_.erase(free_.begin());
    }
    free_bytes_ += piece.size();
    free_.push_back(piece);
  }
  std::ranges::for_each(std::span(leaving).first(count), unmap);
}

}  // namespace muster::data
