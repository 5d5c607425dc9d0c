// The rows of one shard of one table, found by key.
//
// A row is one block of bytes: a header, then `values` floats, which are weights and optimizer
// state (table.h knows which). It stays where it is until it is erased. Rows lie in pieces of slabs
// (slabs.h), one after the other, so a scan needs no index.
//
// The index is a hash table of 4 bytes for each place: 8 bits of the key's hash and 24 bits of
// where the row is. So a look-up reads one cache line of the index and then the row, and an entry
// costs 5 to 11 bytes. Linear probing; an erased entry is closed by moving those behind it, so
// there are no marks that would slow down a table with much coming and going.
//
// Bits. The order of rows in a scan depends on the order in which they were made and erased, so
// nothing whose bits matter may depend on it.
//
// One thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "muster/ps/slabs.h"

namespace muster::ps {

// Spreads keys over shards and places: a bijection, so different keys never have the same hash.
// Shards take the upper bits of it, an index the lower ones.
uint64_t hash_of_key(uint64_t key);

struct Row {
  uint64_t key;
  uint32_t used;    // the step at which it was last updated: for eviction
  uint16_t sights;  // how often it was updated, up to 65,535: for admission and eviction
  uint16_t there;   // 1, and marks of tiered_rows.h; 0: this place is free
  float* values() { return reinterpret_cast<float*>(this + 1); }
  const float* values() const { return reinterpret_cast<const float*>(this + 1); }
};
static_assert(sizeof(Row) == 16);

class Rows {
 public:
  // Rows have `values` floats each. `slabs` must outlive this.
  Rows(size_t values, Slabs& slabs);
  ~Rows();
  Rows(Rows&& other) noexcept;
  Rows& operator=(Rows&&) = delete;

  size_t size() const { return size_; }
  size_t row_bytes() const { return row_bytes_; }

  // Null: there is none.
  Row* find(uint64_t key);
  // The same for many keys, in a fraction of the time: memory is fetched for several at once.
  void find(std::span<const uint64_t> keys, std::span<Row*> rows);
  // The memory of the index that finding or inserting this key will need.
  void fetch_ahead(uint64_t key) const {
    if (capacity_ > 0) __builtin_prefetch(&entries_[home_of(hash_of_key(key))]);
  }
  // A new row with zeros; `key` must not be there. Null: there is no memory, or the shard is
  // full().
  Row* insert(uint64_t key);
  // That many rows are about to come: the index becomes as large as they need, if there is memory.
  void reserve(size_t rows);
  void erase(Row* row);
  void clear();

  // visit(Row&) for each row, in the order of their places. It may erase the row that it gets.
  template <typename Visit>
  void for_each(Visit visit) {
    for_each_place([&](uint32_t /*place*/, Row& row) { visit(row); });
  }

  // Goes around: the next row from this place on, which moves behind it. Null: there are no rows.
  Row* next(uint32_t& place);

  // Another row needs an index that is larger than any piece.
  bool needs_large_index() const;
  // Of memory that it has: places and index.
  size_t bytes() const { return bytes_; }
  size_t pieces() const { return pieces_.size(); }
  // The last piece can be given back when none of its rows is left.
  template <typename Visit>
  void for_each_in_last_piece(Visit visit) {
    for_each_of(pieces_.size() - 1, [&](uint32_t /*place*/, Row& row) { visit(row); });
  }
  void drop_last_piece();

  // Places that 24 bits can tell apart. A piece has a power of two of them, of which not all may be
  // used, so a shard is full with half as many rows, at worst.
  static constexpr size_t kMost = (size_t{1} << 24) - 1;
  bool full() const {
    return free_ == 0 && !pieces_.empty() && in_last_ == rows_in(pieces_.size() - 1) &&
           (pieces_.size() + 1) << slot_bits_ > kMost;
  }

 private:
  using Entry = uint32_t;  // 0: none. Else the tag in the upper 8 bits, 1 + place below
  static constexpr uint32_t kPlaceBits = 24;
  static constexpr uint32_t kPlaceMask = (1u << kPlaceBits) - 1;

  static Entry tag_of(uint64_t hash) { return static_cast<Entry>(hash >> 32) << kPlaceBits; }
  size_t home_of(uint64_t hash) const { return hash & (capacity_ - 1); }
  Row* at(size_t piece, size_t slot) const {
    return reinterpret_cast<Row*>(pieces_[piece] + slot * row_bytes_);
  }
  Row* at(Entry entry) const {
    const uint32_t place = (entry & kPlaceMask) - 1;
    return at(place >> slot_bits_, place & ((1u << slot_bits_) - 1));
  }
  size_t piece_bytes(size_t piece) const;
  size_t rows_in(size_t piece) const { return piece_bytes(piece) / row_bytes_; }
  size_t given_out(size_t piece) const {
    return piece + 1 < pieces_.size() ? rows_in(piece) : in_last_;
  }
  template <typename Visit>
  void for_each_place(Visit visit) {
    for (size_t p = 0; p < pieces_.size(); ++p) for_each_of(p, visit);
  }
  template <typename Visit>
  void for_each_of(size_t p, Visit&& visit) {
    const size_t count = given_out(p);
    for (size_t slot = 0; slot < count; ++slot) {
      Row* const row = at(p, slot);
      if (row->there != 0) visit(static_cast<uint32_t>(p << slot_bits_ | slot), *row);
    }
  }
  size_t find_entry(uint64_t key, uint64_t hash) const;  // capacity_: none
  bool grow();
  bool grow_to(size_t capacity);
  void put(Entry entry, uint64_t hash);

  const size_t row_bytes_;
  Slabs* slabs_;
  size_t first_bytes_ = 0;    // of a piece: the first is small, each next one twice as large, ...
  size_t largest_bytes_ = 0;  // ... up to this
  uint32_t slot_bits_ = 0;    // of a place: which row of a piece
  std::vector<std::byte*> pieces_;
  size_t in_last_ = 0;  // places of the last piece that have been given out
  uint32_t free_ = 0;   // 1 + the last erased place, whose `key` is the same of the next
  size_t size_ = 0;
  size_t bytes_ = 0;
  Entry* entries_ = nullptr;
  size_t capacity_ = 0;  // a power of two, or 0
};

}  // namespace muster::ps
