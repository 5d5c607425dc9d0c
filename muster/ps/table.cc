#include "muster/ps/table.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/random.h"

namespace muster::ps {
namespace {

Error twice(const TableOptions& options, uint64_t key) {
  return Error(ErrorKind::kData, "key {} of table '{}' is there twice", key, options.name);
}

void count_sight(Row& row) {
  if (row.sights < std::numeric_limits<uint16_t>::max()) ++row.sights;
}

}  // namespace

void ContentsHash::add(const Hash128& one) {
  const uint64_t low = sum_.low + one.low;
  sum_.high += one.high + (low < sum_.low ? 1 : 0);
  sum_.low = low;
}

void ContentsHash::add(Row& row, size_t row_bytes) {
  const uint16_t there = std::exchange(row.there, uint16_t{1});
  add(hash128(std::span(reinterpret_cast<const std::byte*>(&row), row_bytes)));
  row.there = there;
}

void ContentsHash::add(const Tombstone& tombstone) {
  const uint64_t words[] = {tombstone.key, tombstone.step};  // without padding
  add(hash128(std::as_bytes(std::span(words))));
}

void ContentsHash::add_tombstones_after(uint32_t step) {
  if (step > 0) add(hash128(std::as_bytes(std::span(&step, 1))));
}

void initial_weights(const TableOptions& options, uint64_t key, std::span<float> weights) {
  if (options.initial == InitialWeights::kZero) {
    std::ranges::fill(weights, 0.0F);
    return;
  }
  RandomStream random(options.seed, Purpose::kTable, options.id, key);
  const auto scale = static_cast<float>(options.scale);
  for (float& weight : weights) weight = scale * (2 * random.uniform() - 1);
}

Status check(const TableOptions& options) {
  const auto wrong = [&](std::string_view what) {
    return Error(ErrorKind::kJob, "table '{}': {}", options.name, what);
  };
  if (options.width == 0) return wrong("its rows need a width of 1 at least");
  if (!(options.optimizer.eps > 0) || !(options.optimizer.lr > 0)) {
    return wrong("eps and lr of its optimizer must be more than 0");
  }
  if (!(options.admission.probability > 0) || options.admission.probability > 1) {
    return wrong("the probability that a row is made must be more than 0 and at most 1");
  }
  if (options.eviction.every == 0) return wrong("there must be a time between two evictions");
  if (options.admission.sights > 1 && options.eviction.age == 0) {
    return wrong("keys that are counted until they get a row are never forgotten without an age");
  }
  return {};
}

TableShard::TableShard(const TableOptions& options, Slabs& slabs, ColdTier* cold, uint32_t shard)
    : options_(&options),
      cold_(cold),
      rows_(options.width + options.optimizer.state(options.width), slabs, cold,
            {options.id, shard, false}),
      candidates_(0, slabs, cold, {options.id, shard, true}) {}

Error TableShard::no_room(const TieredRows& rows) const {
  if (cold_ != nullptr && cold_->failure()) return *cold_->failure();
  if (rows.full()) {
    return Error(ErrorKind::kMachine,
                 "a shard of table '{}' has {} rows and cannot have more: use more shards "
                 "(tables.shards)",
                 options_->name, rows.size());
  }
  if (cold_ != nullptr) {
    return Error(ErrorKind::kMachine,
                 "table '{}' has no memory for a single row in one of its shards: give its servers "
                 "more memory (tables.memory), or use fewer shards (tables.shards)",
                 options_->name);
  }
  return Error(ErrorKind::kMachine,
               "table '{}' has no memory for another row: give its servers more memory "
               "(tables.memory) or a disk (tables.disk), use more servers (tables.servers), or "
               "evict rows (tables.evict_after, tables.most_rows)",
               options_->name);
}

void TableShard::read(std::span<const uint64_t> keys, float* weights) {
  const size_t width = options_->width;
  found_.resize(keys.size());
  rows_.find(keys, found_);
  for (size_t i = 0; i < keys.size(); ++i) {
    fetch_ahead(i, width);
    if (found_[i] != nullptr) {
      std::copy_n(found_[i]->values(), width, weights + i * width);
      rows_.note_read(*found_[i]);
    } else {
      initial_weights(*options_, keys[i], std::span(weights + i * width, width));
    }
  }
  rows_.look_up(keys, [&](size_t place, const float* values) {
    std::copy_n(values, width, weights + place * width);
  });
}

TieredRows* TableShard::admit(uint64_t key, int64_t step, Row*& row) {
  const Admission& rule = options_->admission;
  row = nullptr;
  if (rule.probability < 1) {
    const uint64_t seed = hash64(&options_->id, sizeof(options_->id), options_->seed);
    RandomStream random(seed, Purpose::kAdmission, key, static_cast<uint64_t>(step));
    if (random.uniform() >= static_cast<float>(rule.probability)) return nullptr;
  }
  Row* candidate = nullptr;
  if (rule.sights > 1) {
    if (candidates_.bring(std::span(&key, 1)) == 0) return &candidates_;
    candidate = candidates_.find(key);
    if (candidate == nullptr) candidate = candidates_.insert(key);
    if (candidate == nullptr) return &candidates_;
    candidates_.note_update(*candidate);
    candidate->used = static_cast<uint32_t>(step);
    if (candidate->sights + 1 < rule.sights) {
      count_sight(*candidate);
      return nullptr;
    }
  }
  row = rows_.insert(key);
  if (row == nullptr) return &rows_;
  if (candidate != nullptr) {
    row->sights = candidate->sights;
    candidates_.erase(candidate);
  }
  initial_weights(*options_, key, std::span(row->values(), options_->width));
  options_->optimizer.begin(row->values(), options_->width);
  return nullptr;
}

// While one row is read, the next ones come: a row of width 64 has five cache lines.
void TableShard::fetch_ahead(size_t i, size_t floats) const {
  constexpr size_t kAhead = 4;
  constexpr size_t kLine = 64;
  if (i + kAhead >= found_.size() || found_[i + kAhead] == nullptr) return;
  const auto* const row = reinterpret_cast<const std::byte*>(found_[i + kAhead]);
  const size_t bytes = sizeof(Row) + floats * sizeof(float);
  for (size_t at = kLine; at < bytes; at += kLine) __builtin_prefetch(row + at);
}

// In several rounds if there is no memory for all of its rows at once.
Status TableShard::update(std::span<const uint64_t> keys, const float* gradients, int64_t step,
                          double lr) {
  // What is looked up on disk, and then does not fit, is looked up again.
  constexpr size_t kRound = 1024;
  for (size_t done = 0; done < keys.size();) {
    const auto round =
        keys.subspan(done, std::min(cold_ == nullptr ? keys.size() : kRound, keys.size() - done));
    TieredRows* crowded = nullptr;
    MUSTER_TRY(const size_t some,
               update_some(round, gradients + done * options_->width, step, lr, crowded));
    if (cold_ != nullptr && cold_->failure()) return *cold_->failure();
    done += some;
    if (crowded != nullptr && !crowded->make_room()) return no_room(*crowded);
  }
  return {};
}

Result<size_t> TableShard::update_some(std::span<const uint64_t> keys, const float* gradients,
                                       int64_t step, double lr, TieredRows*& crowded) {
  const size_t width = options_->width;
  const size_t here = rows_.bring(keys);
  if (here < keys.size()) crowded = &rows_;
  found_.resize(here);
  rows_.find(keys.first(here), found_);
  updated_.clear();
  const size_t floats = rows_.row_bytes() / sizeof(float);
  size_t left_out = 0;
  size_t i = 0;
  for (; i < here; ++i) {
    fetch_ahead(i, floats);
    Row* row = found_[i];
    if (row == nullptr) {
      if (rows_.find(keys[i]) != nullptr) return twice(*options_, keys[i]);
      if (TieredRows* const full = admit(keys[i], step, row); full != nullptr) {
        crowded = full;
        break;
      }
    }
    if (row == nullptr) {
      // From here on gradients have to move up, into a buffer of our own.
      if (left_out++ == 0) {
        gradients_.resize(keys.size() * width);
        std::copy_n(gradients, updated_.size() * width, gradients_.begin());
      }
      continue;
    }
    count_sight(*row);
    row->used = static_cast<uint32_t>(step);
    rows_.note_update(*row);
    if (left_out > 0)
      std::copy_n(gradients + i * width, width, &gradients_[updated_.size() * width]);
    updated_.push_back(row->values());
  }
  options_->optimizer.update(updated_, left_out > 0 ? gradients_.data() : gradients, width,
                             step + 1, lr);
  return i;
}

uint64_t TableShard::fetch(std::span<const uint64_t> keys, bool update, RowFetcher& fetcher) {
  const uint64_t rows = rows_.fetch(keys, fetcher);
  return update ? std::max(rows, candidates_.fetch(keys, fetcher)) : rows;
}

void TableShard::arrive(const FetchedRows& fetched) {
  (fetched.part.candidates ? candidates_ : rows_).arrive(fetched);
}

void TableShard::evict(int64_t step, const Evicted& evicted) {
  const Eviction& rule = options_->eviction;
  if (rule.age > 0) {
    rows_.for_each_unused(step - rule.age, [&](Row& row) {
      if (evicted) evicted(row.key, row.values());
      tombstones_.push_back({row.key, static_cast<uint32_t>(step)});
      rows_.erase(&row);
    });
    candidates_.for_each_unused(step - rule.age, [&](Row& row) { candidates_.erase(&row); });
  }
  if (rule.most > 0 && rows_.size() > rule.most) evict_least_seen(step, evicted);
  forget_tombstones();
}

void TableShard::evict_least_seen(int64_t step, const Evicted& evicted) {
  struct Rank {
    uint64_t key;
    uint32_t used;
    uint16_t sights;
  };
  std::vector<Rank> all;
  all.reserve(rows_.size());
  rows_.for_each([&](const Row& row) { all.push_back({row.key, row.used, row.sights}); });
  const auto keep = static_cast<ptrdiff_t>(options_->eviction.most);
  std::ranges::nth_element(all, all.begin() + keep, [](const Rank& a, const Rank& b) {
    if (a.sights != b.sights) return a.sights > b.sights;
    if (a.used != b.used) return a.used > b.used;
    return a.key < b.key;
  });
  std::vector<float> weights(options_->width);
  for (auto one = all.begin() + keep; one != all.end(); ++one) {
    if (evicted) {
      read(std::span(&one->key, 1), weights.data());
      evicted(one->key, weights.data());
    }
    tombstones_.push_back({one->key, static_cast<uint32_t>(step)});
    rows_.erase_key(one->key);
  }
}

// Those of one step go together: an export needs all of them or none.
void TableShard::forget_tombstones() {
  const size_t most = rows_.size() + kFewTombstones;
  if (tombstones_.size() <= most) return;
  tombstones_after_ = tombstones_[tombstones_.size() - most - 1].step;
  const auto kept = std::ranges::upper_bound(tombstones_, tombstones_after_, {}, &Tombstone::step);
  tombstones_.erase(tombstones_.begin(), kept);
}

Hash128 TableShard::hash() {
  ContentsHash hash;
  rows_.for_each([&](Row& row) { hash.add(row, row_bytes()); });
  candidates_.for_each([&](Row& row) { hash.add(row, candidate_bytes()); });
  for (const Tombstone& tombstone : tombstones_) hash.add(tombstone);
  hash.add_tombstones_after(tombstones_after_);
  return hash.value();
}

Status TableShard::put(uint64_t key, uint32_t used, uint16_t sights, std::span<const float> values,
                       ContentsHash* hash) {
  TieredRows& rows = values.empty() ? candidates_ : rows_;
  if (rows_.contains(key) || candidates_.contains(key)) return twice(*options_, key);
  Row* row = rows.insert(key);
  while (row == nullptr) {
    if (!rows.make_room()) return no_room(rows);
    row = rows.insert(key);
  }
  row->used = used;
  row->sights = sights;
  std::ranges::copy(values, row->values());
  if (hash != nullptr) hash->add(*row, rows.row_bytes());
  return {};
}

bool TableShard::put(Tombstone tombstone) {
  const uint32_t before = tombstones_.empty() ? tombstones_after_ + 1 : tombstones_.back().step;
  if (tombstone.step < before) return false;
  tombstones_.push_back(tombstone);
  return true;
}

void TableShard::clear() {
  rows_.clear();
  candidates_.clear();
  tombstones_.clear();
  tombstones_after_ = 0;
}

}  // namespace muster::ps
