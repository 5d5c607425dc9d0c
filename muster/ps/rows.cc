#include "muster/ps/rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "muster/base/check.h"

namespace muster::ps {
namespace {

// Of a piece of rows, if they are not larger than that.
constexpr size_t kLargestPiece = size_t{64} << 10;
// An index is at most so full: at 3/4 a look-up reads 2.5 entries on average, nearly always of one
// cache line.
constexpr size_t kFullOf = 4;
constexpr size_t kFull = 3;
constexpr size_t kSmallestIndex = Slabs::kSmallest / sizeof(uint32_t);
// Keys whose memory is fetched at the same time: more than a core has fetches under way.
constexpr size_t kAhead = 16;

size_t entry_bytes(size_t capacity) { return capacity * sizeof(uint32_t); }

}  // namespace

// The finalizer of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators", OOPSLA 2014).
uint64_t hash_of_key(uint64_t key) {
  key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9;
  key = (key ^ (key >> 27)) * 0x94D049BB133111EB;
  return key ^ (key >> 31);
}

Rows::Rows(size_t values, Slabs& slabs)
    : row_bytes_((sizeof(Row) + values * sizeof(float) + 7) / 8 * 8), slabs_(&slabs) {
  first_bytes_ = std::max(Slabs::kSmallest, std::bit_ceil(row_bytes_));
  largest_bytes_ = std::max(kLargestPiece, first_bytes_);
  slot_bits_ = static_cast<uint32_t>(std::bit_width(largest_bytes_ / row_bytes_ - 1));
}

Rows::Rows(Rows&& other) noexcept
    : row_bytes_(other.row_bytes_),
      slabs_(other.slabs_),
      first_bytes_(other.first_bytes_),
      largest_bytes_(other.largest_bytes_),
      slot_bits_(other.slot_bits_),
      pieces_(std::exchange(other.pieces_, {})),
      in_last_(std::exchange(other.in_last_, 0)),
      free_(std::exchange(other.free_, 0)),
      size_(std::exchange(other.size_, 0)),
      bytes_(std::exchange(other.bytes_, 0)),
      entries_(std::exchange(other.entries_, nullptr)),
      capacity_(std::exchange(other.capacity_, 0)) {}

Rows::~Rows() { clear(); }

void Rows::clear() {
  for (size_t p = 0; p < pieces_.size(); ++p) slabs_->free(pieces_[p], piece_bytes(p));
  pieces_.clear();
  if (entries_ != nullptr) {
    slabs_->free(reinterpret_cast<std::byte*>(entries_), entry_bytes(capacity_));
  }
  entries_ = nullptr;
  capacity_ = in_last_ = size_ = bytes_ = 0;
  free_ = 0;
}

size_t Rows::piece_bytes(size_t piece) const {
  const auto doublings =
      std::min<size_t>(piece, static_cast<size_t>(std::countr_zero(largest_bytes_ / first_bytes_)));
  return first_bytes_ << doublings;
}

size_t Rows::find_entry(uint64_t key, uint64_t hash) const {
  if (capacity_ == 0) return capacity_;
  const Entry tag = tag_of(hash);
  for (size_t i = home_of(hash);; i = (i + 1) & (capacity_ - 1)) {
    const Entry entry = entries_[i];
    if (entry == 0) return capacity_;
    if ((entry & ~kPlaceMask) == tag && at(entry)->key == key) return i;
  }
}

Row* Rows::find(uint64_t key) {
  const size_t i = find_entry(key, hash_of_key(key));
  return i == capacity_ ? nullptr : at(entries_[i]);
}

void Rows::find(std::span<const uint64_t> keys, std::span<Row*> rows) {
  MUSTER_CHECK(keys.size() == rows.size(), "a place for each row");
  if (capacity_ == 0) {
    std::ranges::fill(rows, nullptr);
    return;
  }
  std::array<uint64_t, kAhead> hashes;
  for (size_t begin = 0; begin < keys.size(); begin += kAhead) {
    const size_t count = std::min(kAhead, keys.size() - begin);
    for (size_t k = 0; k < count; ++k) {
      hashes[k] = hash_of_key(keys[begin + k]);
      __builtin_prefetch(&entries_[home_of(hashes[k])]);
    }
    // The first entry with the right tag is nearly always the row.
    for (size_t k = 0; k < count; ++k) {
      const Entry tag = tag_of(hashes[k]);
      for (size_t i = home_of(hashes[k]); entries_[i] != 0; i = (i + 1) & (capacity_ - 1)) {
        if ((entries_[i] & ~kPlaceMask) != tag) continue;
        __builtin_prefetch(at(entries_[i]));
        break;
      }
    }
    for (size_t k = 0; k < count; ++k) {
      const size_t i = find_entry(keys[begin + k], hashes[k]);
      rows[begin + k] = i == capacity_ ? nullptr : at(entries_[i]);
    }
  }
}

void Rows::put(Entry entry, uint64_t hash) {
  size_t i = home_of(hash);
  while (entries_[i] != 0) i = (i + 1) & (capacity_ - 1);
  entries_[i] = entry;
}

bool Rows::grow() { return grow_to(std::max(2 * capacity_, kSmallestIndex)); }

void Rows::reserve(size_t rows) {
  const size_t capacity = std::bit_ceil((kFullOf * rows + kFull - 1) / kFull);
  if (capacity > std::max(capacity_, kSmallestIndex)) grow_to(capacity);
}

bool Rows::grow_to(size_t capacity) {
  std::byte* const piece = slabs_->allocate(entry_bytes(capacity));
  if (piece == nullptr) return false;
  Entry* const old = std::exchange(entries_, reinterpret_cast<Entry*>(piece));
  const size_t old_capacity = std::exchange(capacity_, capacity);
  // In the order of the rows, which is that of memory; the old index is not.
  for_each_place([&](uint32_t place, const Row& row) {
    const uint64_t hash = hash_of_key(row.key);
    put(tag_of(hash) | (place + 1), hash);
  });
  if (old != nullptr) slabs_->free(reinterpret_cast<std::byte*>(old), entry_bytes(old_capacity));
  bytes_ += entry_bytes(capacity_) - entry_bytes(old_capacity);
  return true;
}

Row* Rows::insert(uint64_t key) {
  if (kFullOf * (size_ + 1) > kFull * capacity_ && !grow()) return nullptr;
  uint32_t place = 0;
  if (free_ != 0) {
    place = free_ - 1;
    Row* const row = at(Entry{free_});
    free_ = static_cast<uint32_t>(row->key);
    std::fill_n(reinterpret_cast<std::byte*>(row), row_bytes_, std::byte{0});
  } else {
    if (pieces_.empty() || in_last_ == rows_in(pieces_.size() - 1)) {
      if (full()) return nullptr;
      std::byte* const piece = slabs_->allocate(piece_bytes(pieces_.size()));
      if (piece == nullptr) return nullptr;
      pieces_.push_back(piece);
      bytes_ += piece_bytes(pieces_.size() - 1);
      in_last_ = 0;
    }
    place = static_cast<uint32_t>((pieces_.size() - 1) << slot_bits_ | in_last_++);
  }
  const uint64_t hash = hash_of_key(key);
  const Entry entry = tag_of(hash) | (place + 1);
  put(entry, hash);
  ++size_;
  Row* const row = at(entry);
  row->key = key;
  row->there = 1;
  return row;
}

void Rows::erase(Row* row) {
  size_t hole = find_entry(row->key, hash_of_key(row->key));
  MUSTER_CHECK(hole != capacity_ && at(entries_[hole]) == row, "a row of this table is erased");
  const uint32_t place = entries_[hole] & kPlaceMask;
  row->there = 0;
  row->key = std::exchange(free_, place);
  --size_;
  // An entry behind the hole moves into it, unless that would be before its home.
  const size_t mask = capacity_ - 1;
  for (size_t i = (hole + 1) & mask; entries_[i] != 0; i = (i + 1) & mask) {
    const size_t home = home_of(hash_of_key(at(entries_[i])->key));
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    entries_[hole] = entries_[i];
    hole = i;
  }
  entries_[hole] = 0;
}

bool Rows::needs_large_index() const {
  return kFullOf * (size_ + 1) > kFull * capacity_ && entry_bytes(2 * capacity_) > kLargestPiece;
}

Row* Rows::next(uint32_t& place) {
  if (size_ == 0) return nullptr;
  size_t piece = place >> slot_bits_;
  size_t slot = place & ((size_t{1} << slot_bits_) - 1);
  while (true) {
    if (piece >= pieces_.size()) piece = slot = 0;
    for (const size_t count = given_out(piece); slot < count; ++slot) {
      Row* const row = at(piece, slot);
      if (row->there == 0) continue;
      place = static_cast<uint32_t>(piece << slot_bits_ | slot) + 1;
      return row;
    }
    ++piece;
    slot = 0;
  }
}

void Rows::drop_last_piece() {
  MUSTER_CHECK(!pieces_.empty(), "there is a last piece");
  const size_t last = pieces_.size() - 1;
  for_each_in_last_piece(
      [](const Row&) { MUSTER_CHECK(false, "a piece without rows is dropped"); });
  // Its places are no longer free ones.
  Row* before = nullptr;
  for (uint32_t place = free_; place != 0;) {
    Row* const row = at(Entry{place});
    const auto after = static_cast<uint32_t>(row->key);
    if (((place - 1) >> slot_bits_) != last) {
      before = row;
    } else if (before != nullptr) {
      before->key = after;
    } else {
      free_ = after;
    }
    place = after;
  }
  slabs_->free(pieces_[last], piece_bytes(last));
  bytes_ -= piece_bytes(last);
  pieces_.pop_back();
  in_last_ = pieces_.empty() ? 0 : rows_in(pieces_.size() - 1);
}

}  // namespace muster::ps
