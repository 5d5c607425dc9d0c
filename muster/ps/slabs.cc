#include "muster/ps/slabs.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "muster/base/check.h"

namespace muster::ps {
namespace {

// Slabs are mapped so many at a time: the kernel allows some 65,000 mappings for a process.
constexpr size_t kSlabsOfARegion = 64;

size_t size_class(size_t bytes) { return static_cast<size_t>(std::countr_zero(bytes)); }

}  // namespace

Slabs::~Slabs() {
  for (const Region& region : regions_) munmap(region.data, region.bytes);
}

// At a multiple of kHugePage, or the kernel would not give huge pages.
std::byte* Slabs::map(size_t bytes) {
  const size_t room = bytes + kHugePage;
  void* const all = mmap(nullptr, room, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(all);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (before > 0) munmap(begin, before);
  if (before < kHugePage) munmap(begin + before + bytes, kHugePage - before);
  madvise(begin + before, bytes, MADV_HUGEPAGE);  // without it only slower
  regions_.push_back({begin + before, bytes});
  return begin + before;
}

std::byte* Slabs::new_slab() {
  if (slabs_left_ == 0) {
    next_slab_ = map(kSlabsOfARegion * kHugePage);
    if (next_slab_ == nullptr) return nullptr;
    slabs_left_ = kSlabsOfARegion;
  }
  --slabs_left_;
  reserved_ += kHugePage;
  return std::exchange(next_slab_, next_slab_ + kHugePage);
}

void Slabs::keep(std::byte* piece, size_t bytes) { free_[size_class(bytes)].push_back(piece); }

// Of that size, or the beginning of a larger one, whose rest is kept.
std::byte* Slabs::take_free(size_t bytes) {
  for (size_t size = bytes; size <= kHugePage; size *= 2) {
    auto& pieces = free_[size_class(size)];
    if (pieces.empty()) continue;
    std::byte* const piece = pieces.back();
    pieces.pop_back();
    for (size_t rest = size / 2; rest >= bytes; rest /= 2) keep(piece + rest, rest);
    return piece;
  }
  return nullptr;
}

// A piece and its other half become one.
void Slabs::merge_free() {
  freed_ = false;
  for (size_t bytes = kSmallest; bytes < kHugePage; bytes *= 2) {
    auto pieces = std::exchange(free_[size_class(bytes)], {});
    std::ranges::sort(pieces);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const bool first_half = reinterpret_cast<uintptr_t>(pieces[i]) % (2 * bytes) == 0;
      const bool whole = first_half && i + 1 < pieces.size() && pieces[i + 1] == pieces[i] + bytes;
      keep(pieces[i], whole ? 2 * bytes : bytes);
      if (whole) ++i;
    }
  }
}

std::byte* Slabs::allocate(size_t bytes) {
  MUSTER_CHECK(std::has_single_bit(bytes) && bytes >= kSmallest, "pieces are powers of two");
  std::byte* piece = bytes <= kHugePage ? take_free(bytes) : nullptr;
  const bool at_limit = kHugePage > most_ - std::min(most_, reserved_);
  if (piece == nullptr && bytes <= kHugePage && at_limit && freed_) {
    merge_free();
    piece = take_free(bytes);
  }
  if (piece != nullptr) {
    std::memset(piece, 0, bytes);
  } else if (bytes > kHugePage) {
    if (bytes > most_ - std::min(most_, reserved_)) return nullptr;
    piece = map(bytes);
    if (piece != nullptr) reserved_ += bytes;
  } else {
    if (at_limit) return nullptr;
    piece = new_slab();
    if (piece == nullptr) return nullptr;
    for (size_t rest = kHugePage / 2; rest >= bytes; rest /= 2) keep(piece + rest, rest);
  }
  if (piece != nullptr) used_ += bytes;
  return piece;
}

void Slabs::free(std::byte* piece, size_t bytes) {
  used_ -= bytes;
  if (bytes <= kHugePage) {
    freed_ = true;
    keep(piece, bytes);
    return;
  }
  const auto region = std::ranges::find(regions_, piece, &Region::data);
  MUSTER_CHECK(region != regions_.end(), "a large piece is a region");
  munmap(region->data, region->bytes);
  regions_.erase(region);
  reserved_ -= bytes;
}

}  // namespace muster::ps
