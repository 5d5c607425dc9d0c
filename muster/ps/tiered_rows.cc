#include "muster/ps/tiered_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "muster/base/check.h"

namespace muster::ps {
namespace {

// Rows that go at a time: a part of those in memory, but not so many that others wait long.
constexpr size_t kPart = 16;
constexpr size_t kFewest = 64;
constexpr size_t kMost = 4096;
// Keys that are looked up at a time.
constexpr size_t kLookUp = 1024;
// Keys without a row that are remembered.
constexpr size_t kMostNowhere = 4096;

// On disk a row has no key, and no marks.
constexpr size_t kKeyBytes = sizeof(uint64_t);

std::string_view packed(Row& row, size_t row_bytes) {
  return {reinterpret_cast<const char*>(&row) + kKeyBytes, row_bytes - kKeyBytes};
}

}  // namespace

TieredRows::TieredRows(size_t values, Slabs& slabs, ColdTier* cold, ColdPart part)
    : rows_(values, slabs), cold_(cold), part_(part) {
  if (cold_ != nullptr) number_ = cold_->join(*this);
}

TieredRows::TieredRows(TieredRows&& other) noexcept
    : rows_(std::move(other.rows_)),
      cold_(std::exchange(other.cold_, nullptr)),
      part_(other.part_),
      number_(other.number_),
      on_disk_(std::exchange(other.on_disk_, 0)),
      in_both_(std::exchange(other.in_both_, 0)),
      hand_(std::exchange(other.hand_, 0)),
      oldest_on_disk_(other.oldest_on_disk_),
      fetching_(std::move(other.fetching_)),
      nowhere_(other.nowhere_) {
  if (cold_ != nullptr) cold_->moved(number_, *this);
}

TieredRows::~TieredRows() {
  clear();
  if (cold_ != nullptr) cold_->leave(number_);
}

void TieredRows::clear() {
  rows_.clear();
  if (on_disk_ > 0) cold_->note(cold_->rows().clear(part_));
  on_disk_ = in_both_ = 0;
  hand_ = 0;
  oldest_on_disk_ = std::numeric_limits<int64_t>::max();
  fetching_.clear();
  nowhere_ = 0;
}

// ---- Out of memory.

bool TieredRows::make_room() {
  if (cold_ == nullptr || cold_->failure()) return false;
  // Pieces of others would not help one whose index has to grow beyond them, or cannot grow.
  const bool alone = rows_.needs_large_index() || rows_.full();
  TieredRows* const donor = alone ? nullptr : cold_->donor_for(*this);
  if (donor != nullptr) {
    donor->give_piece();
    return !cold_->failure();
  }
  if (rows_.size() == 0) return false;
  choose(std::clamp(rows_.size() / kPart, kFewest, kMost));
  write_chosen();
  return !cold_->failure();
}

void TieredRows::choose(size_t count) {
  count = std::min(count, rows_.size());
  while (chosen_.size() < count) {
    Row* const row = rows_.next(hand_);
    if ((row->there & kChosen) != 0) continue;
    if ((row->there & kLaps) != 0) {
      row->there = static_cast<uint16_t>(row->there - kLap);
      continue;
    }
    row->there |= kChosen;
    chosen_.push_back(row);
  }
}

void TieredRows::write_chosen() {
  written_.clear();
  for (Row* const row : chosen_) {
    const bool on_disk = (row->there & kOnDisk) != 0;
    const bool write = !on_disk || (row->there & kChanged) != 0;
    row->there = 1;
    if (write) written_.push_back({row->key, packed(*row, row_bytes())});
    on_disk ? --in_both_ : ++on_disk_;
    oldest_on_disk_ = std::min<int64_t>(oldest_on_disk_, row->used);
  }
  if (!written_.empty()) cold_->note(cold_->rows().put(part_, written_));
  cold_->count_written(written_.size());
  for (Row* const row : chosen_) rows_.erase(row);
  chosen_.clear();
}

void TieredRows::give_piece() {
  rows_.for_each_in_last_piece([&](Row& row) { chosen_.push_back(&row); });
  write_chosen();
  rows_.drop_last_piece();
  hand_ = 0;
}

// ---- Into memory.

// Null: there is no memory.
Row* TieredRows::take_in(uint64_t key, std::string_view bytes, uint16_t laps) {
  MUSTER_CHECK(bytes.size() == row_bytes() - kKeyBytes, "a row on disk is of this table");
  Row* const row = rows_.insert(key);
  if (row == nullptr) return nullptr;
  std::memcpy(reinterpret_cast<char*>(row) + kKeyBytes, bytes.data(), bytes.size());
  row->there = static_cast<uint16_t>(1 | kOnDisk | laps);
  ++in_both_;
  forget_fetch(key);
  return row;
}

// Of those that are not in memory and may be on disk: missing_, and their places_ in `keys`.
void TieredRows::find_missing(std::span<const uint64_t> keys) {
  found_.resize(keys.size());
  rows_.find(keys, found_);
  missing_.clear();
  places_.clear();
  for (size_t i = 0; i < keys.size(); ++i) {
    if (found_[i] != nullptr || is_nowhere(keys[i])) continue;
    missing_.push_back(keys[i]);
    places_.push_back(i);
  }
}

size_t TieredRows::bring(std::span<const uint64_t> keys) {
  for (size_t begin = 0; begin < keys.size(); begin += kLookUp) {
    if (only_on_disk() == 0) break;
    const auto some = keys.subspan(begin, std::min(kLookUp, keys.size() - begin));
    if (const size_t brought = bring_some(some); brought < some.size()) return begin + brought;
  }
  return keys.size();
}

size_t TieredRows::bring_some(std::span<const uint64_t> keys) {
  find_missing(keys);
  if (missing_.empty()) return keys.size();
  cold_->count_late(missing_.size());
  size_t end = keys.size();
  cold_->note(cold_->rows().find(part_, missing_, [&](size_t i, std::string_view bytes) {
    if (places_[i] >= end || rows_.find(missing_[i]) != nullptr) return;
    if (take_in(missing_[i], bytes, kLap) == nullptr) end = places_[i];
  }));
  return end;
}

void TieredRows::look_up(std::span<const uint64_t> keys,
                         const std::function<void(size_t place, const float* values)>& found) {
  if (only_on_disk() == 0) return;
  find_missing(keys);
  if (missing_.empty()) return;
  cold_->count_late(missing_.size());
  cold_->note(cold_->rows().find(part_, missing_, [&](size_t i, std::string_view bytes) {
    found(places_[i], unpack({missing_[i], bytes}).values());
  }));
}

bool TieredRows::contains(uint64_t key) {
  if (rows_.find(key) != nullptr) return true;
  if (only_on_disk() == 0) return false;
  bool there = false;
  cold_->note(
      cold_->rows().find(part_, std::span(&key, 1),
                         [&](size_t /*place*/, std::string_view /*bytes*/) { there = true; }));
  return there;
}

Row* TieredRows::insert(uint64_t key) {
  Row* const row = rows_.insert(key);
  if (row != nullptr) forget_fetch(key);
  return row;
}

// ---- Away.

void TieredRows::erase(Row* row) {
  const uint64_t key = row->key;
  forget_fetch(key);
  const bool scanned = row == reinterpret_cast<const Row*>(scanned_.data());
  if (scanned || (row->there & kOnDisk) != 0) {
    cold_->note(cold_->rows().remove(part_, std::span(&key, 1)));
    --on_disk_;
    if (!scanned) --in_both_;
  }
  if (!scanned) rows_.erase(row);
}

void TieredRows::erase_key(uint64_t key) {
  if (Row* const row = rows_.find(key); row != nullptr) return erase(row);
  if (!contains(key)) return;
  forget_fetch(key);
  cold_->note(cold_->rows().remove(part_, std::span(&key, 1)));
  --on_disk_;
}

// ---- All of them.

Row& TieredRows::unpack(const ColdRow& cold) {
  MUSTER_CHECK(cold.bytes.size() == row_bytes() - kKeyBytes, "a row on disk is of this table");
  scanned_.resize(row_bytes() / sizeof(uint64_t));
  scanned_[0] = cold.key;
  std::memcpy(&scanned_[1], cold.bytes.data(), cold.bytes.size());
  return *reinterpret_cast<Row*>(scanned_.data());
}

// Those that are not in memory too.
void TieredRows::scan_disk(const std::function<void(Row&)>& visit) {
  if (only_on_disk() == 0) return;
  int64_t oldest = std::numeric_limits<int64_t>::max();
  cold_->note(cold_->rows().scan(part_, [&](const ColdRow& cold) {
    Row& row = unpack(cold);
    const size_t before = on_disk_;
    if (rows_.find(cold.key) == nullptr) visit(row);
    if (on_disk_ == before) oldest = std::min<int64_t>(oldest, row.used);
  }));
  oldest_on_disk_ = oldest;
}

// ---- Ahead of their use.

uint64_t TieredRows::fetch(std::span<const uint64_t> keys, RowFetcher& fetcher) {
  if (only_on_disk() == 0) return 0;
  find_missing(keys);
  for (Row* const row : found_) {
    if (row != nullptr) set_laps(*row, kLaps);
  }
  uint64_t last = 0;
  std::erase_if(missing_, [&](uint64_t key) {
    const auto under_way = fetching_.find(key);
    if (under_way == fetching_.end()) return false;
    last = std::max(last, under_way->second);
    return true;
  });
  for (size_t begin = 0; begin < missing_.size(); begin += RowFetcher::kMostKeys) {
    const auto some = std::span(missing_).subspan(
        begin, std::min(RowFetcher::kMostKeys, missing_.size() - begin));
    last = fetcher.request(part_, some);
    for (const uint64_t key : some) fetching_[key] = last;
  }
  return last;
}

void TieredRows::note_nowhere(uint64_t key) {
  if (++nowhere_ > kMostNowhere) {
    std::erase_if(fetching_, [](const auto& known) { return known.second == kNowhere; });
    nowhere_ = 1;
  }
  fetching_[key] = kNowhere;
}

void TieredRows::arrive(const FetchedRows& fetched) {
  if (cold_->failure()) return;
  size_t next = 0;
  for (size_t i = 0; i < fetched.keys.size(); ++i) {
    const bool found = next < fetched.found.size() && fetched.found[next] == i;
    const size_t row = found ? next++ : 0;
    const auto under_way = fetching_.find(fetched.keys[i]);
    if (under_way == fetching_.end() || under_way->second != fetched.number) continue;
    fetching_.erase(under_way);
    if (!found) {
      note_nowhere(fetched.keys[i]);
      continue;
    }
    const auto take = [&] { return take_in(fetched.keys[i], fetched.rows[row], kLaps) != nullptr; };
    // If there is no room for it, it is read when it is needed.
    if (take() || (make_room() && take())) cold_->count_fetched(1);
  }
}

}  // namespace muster::ps
