// The rows of one shard of one table, in memory as far as there is any, and the others on disk.
//
// A row is in memory, on disk, or in both. If it is in both, the one in memory counts: the one on
// disk may be older, and everyone asks memory first. What rows there are, and their bits, does not
// depend on where they are.
//
// Which rows go. A hand goes around over the rows in memory. Each row has laps left: three when it
// was brought in for somebody who waits, one when it was used. The hand takes one of them, and who
// has none left goes to disk, many at a time. A row that has not changed since it came is not
// written again. If another shard has more than twice the memory of this one, that one gives a
// piece instead: shards come late, when others have taken all there is.
//
// Which rows come. fetch() has those that are on disk read by other threads (row_fetcher.h), before
// they are needed; arrive() takes them in. Nothing depends on that: bring() reads what is still on
// disk then and there. A key that is on its way has the number of its fetch here; whatever happens
// to it meanwhile removes that, and then what arrives is left out, as it may be older. If there is
// no row, that is remembered for a while, so that a new row costs no second look-up.
//
// An error of the disk is kept by ColdTier; nothing here can be used after it.
//
// Without a ColdTier everything is in memory. One thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "muster/ps/cold_tier.h"
#include "muster/ps/row_fetcher.h"
#include "muster/ps/rows.h"

namespace muster::ps {

class TieredRows {
 public:
  // Rows have `values` floats each. `slabs` and `cold` must outlive it; `cold` may be null.
  TieredRows(size_t values, Slabs& slabs, ColdTier* cold, ColdPart part);
  ~TieredRows();
  TieredRows(TieredRows&& other) noexcept;
  TieredRows& operator=(TieredRows&&) = delete;

  size_t size() const { return rows_.size() + only_on_disk(); }
  size_t in_memory() const { return rows_.size(); }
  size_t row_bytes() const { return rows_.row_bytes(); }
  bool full() const { return rows_.full(); }
  size_t bytes() const { return rows_.bytes(); }  // of memory

  // ---- In memory alone: null if the row is not there.
  Row* find(uint64_t key) { return rows_.find(key); }
  void find(std::span<const uint64_t> keys, std::span<Row*> rows) { rows_.find(keys, rows); }
  // It was read, or it was updated.
  void note_read(Row& row) {
    if (cold_ != nullptr) set_laps(row, kLap);
  }
  void note_update(Row& row) {
    if (cold_ == nullptr) return;
    set_laps(row, kLap);
    row.there |= kChanged;
  }

  // ---- Wherever they are.
  bool contains(uint64_t key);
  // Brings rows that are on disk into memory. How many keys, from the first on, are in memory now
  // or nowhere: less than all if there is no memory for the next one.
  size_t bring(std::span<const uint64_t> keys);
  // What bring() would bring: found(place in `keys`, its values).
  void look_up(std::span<const uint64_t> keys,
               const std::function<void(size_t place, const float* values)>& found);
  // A new row with zeros; `key` must not be there. Null: there is no memory.
  Row* insert(uint64_t key);
  void fetch_ahead(uint64_t key) const { rows_.fetch_ahead(key); }  // find() or insert() follows
  // That many are about to come.
  void reserve(size_t rows) {
    if (cold_ == nullptr) rows_.reserve(rows);  // else most may go to disk
  }
  // Some rows go to disk, of this shard or another one: no Row* counts any more. False: none can.
  bool make_room();
  void erase(Row* row);  // in memory, or what for_each() has given
  void erase_key(uint64_t key);
  void clear();

  // visit(Row&) for each row, in any order. It may erase the row that it gets, and change nothing
  // else.
  template <typename Visit>
  void for_each(Visit visit) {
    rows_.for_each(visit);
    scan_disk(visit);
  }
  // The same for those that were last updated before this step.
  template <typename Visit>
  void for_each_unused(int64_t before, Visit visit) {
    const auto if_unused = [&](Row& row) {
      if (row.used < before) visit(row);
    };
    rows_.for_each(if_unused);
    if (oldest_on_disk_ < before) scan_disk(if_unused);
  }

  // ---- Ahead of their use.
  // The number of the last fetch that has one of these rows; 0: there is nothing to wait for.
  uint64_t fetch(std::span<const uint64_t> keys, RowFetcher& fetcher);
  void arrive(const FetchedRows& fetched);

  // ---- For ColdTier.
  bool can_give() const { return rows_.pieces() > 1; }
  void give_piece();

 private:
  // In Row::there, beside 1.
  static constexpr uint16_t kOnDisk = 2;   // there is a row with this key on disk
  static constexpr uint16_t kChanged = 4;  // the one on disk is older
  static constexpr uint16_t kChosen = 8;   // to go
  static constexpr uint16_t kLap = 16;
  static constexpr uint16_t kLaps = 3 * kLap;
  static constexpr uint64_t kNowhere = std::numeric_limits<uint64_t>::max();

  static void set_laps(Row& row, uint16_t laps) {
    row.there = static_cast<uint16_t>((row.there & ~kLaps) | laps);
  }
  size_t only_on_disk() const { return on_disk_ - in_both_; }
  void choose(size_t count);
  void write_chosen();
  Row* take_in(uint64_t key, std::string_view bytes, uint16_t laps);
  size_t bring_some(std::span<const uint64_t> keys);
  void find_missing(std::span<const uint64_t> keys);
  bool is_nowhere(uint64_t key) const {
    const auto known = fetching_.find(key);
    return known != fetching_.end() && known->second == kNowhere;
  }
  void note_nowhere(uint64_t key);
  void forget_fetch(uint64_t key) {
    if (!fetching_.empty()) fetching_.erase(key);
  }
  Row& unpack(const ColdRow& row);
  void scan_disk(const std::function<void(Row&)>& visit);

  Rows rows_;
  ColdTier* cold_;
  ColdPart part_;
  size_t number_ = 0;   // for ColdTier
  size_t on_disk_ = 0;  // keys
  size_t in_both_ = 0;  // keys
  uint32_t hand_ = 0;   // a place of rows_
  // Not later than the last update of any row on disk.
  int64_t oldest_on_disk_ = std::numeric_limits<int64_t>::max();
  // By key: the number of its fetch, or kNowhere: it came back without a row.
  std::unordered_map<uint64_t, uint64_t> fetching_;
  size_t nowhere_ = 0;             // such keys, at most
  std::vector<uint64_t> scanned_;  // the row that scan_disk() gives
  // Of one call.
  std::vector<Row*> found_;
  std::vector<Row*> chosen_;
  std::vector<uint64_t> missing_;
  std::vector<size_t> places_;  // of missing_
  std::vector<ColdRow> written_;
};

}  // namespace muster::ps
