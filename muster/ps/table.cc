#include "muster/ps/table.h"

#include <algorithm>
#include <limits>

#include "muster/base/check.h"
#include "muster/base/random.h"

namespace muster::ps {
namespace {

Error no_room(const TableOptions& options, const Rows& rows) {
  if (rows.full()) {
    return Error(
        ErrorKind::kMachine,
        "a shard of table '{}' has {} rows and cannot have more: use more shards, or evict "
        "rows (tables.evict_after, tables.most_rows)",
        options.name, rows.size());
  }
  return Error(ErrorKind::kMachine,
               "table '{}' has no memory for another row: give its servers more memory, use more "
               "servers, or evict rows (tables.evict_after, tables.most_rows)",
               options.name);
}

Error twice(const TableOptions& options, uint64_t key) {
  return Error(ErrorKind::kData, "key {} of table '{}' is there twice", key, options.name);
}

void count_sight(Row& row) {
  if (row.sights < std::numeric_limits<uint16_t>::max()) ++row.sights;
}

// The sum of hashes does not depend on the order of what is hashed.
void add(Hash128& sum, const Hash128& one) {
  const uint64_t low = sum.low + one.low;
  sum.high += one.high + (low < sum.low ? 1 : 0);
  sum.low = low;
}

}  // namespace

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

TableShard::TableShard(const TableOptions& options, Slabs& slabs)
    : options_(&options),
      rows_(options.width + options.optimizer.state(options.width), slabs),
      candidates_(0, slabs) {}

void TableShard::read(std::span<const uint64_t> keys, float* weights) {
  const size_t width = options_->width;
  found_.resize(keys.size());
  rows_.find(keys, found_);
  for (size_t i = 0; i < keys.size(); ++i, weights += width) {
    fetch_ahead(i, width);
    if (found_[i] != nullptr) {
      std::copy_n(found_[i]->values(), width, weights);
    } else {
      initial_weights(*options_, keys[i], std::span(weights, width));
    }
  }
}

Result<Row*> TableShard::admit(uint64_t key, int64_t step) {
  const Admission& rule = options_->admission;
  if (rule.probability < 1) {
    const uint64_t seed = hash64(&options_->id, sizeof(options_->id), options_->seed);
    RandomStream random(seed, Purpose::kAdmission, key, static_cast<uint64_t>(step));
    if (random.uniform() >= static_cast<float>(rule.probability)) return nullptr;
  }
  uint16_t sights = 0;
  if (rule.sights > 1) {
    Row* candidate = candidates_.find(key);
    if (candidate == nullptr) candidate = candidates_.insert(key);
    if (candidate == nullptr) return no_room(*options_, candidates_);
    candidate->used = static_cast<uint32_t>(step);
    sights = candidate->sights;
    if (sights + 1 < rule.sights) {
      count_sight(*candidate);
      return nullptr;
    }
    candidates_.erase(candidate);
  }
  Row* const row = rows_.insert(key);
  if (row == nullptr) return no_room(*options_, rows_);
  row->sights = sights;
  initial_weights(*options_, key, std::span(row->values(), options_->width));
  options_->optimizer.begin(row->values(), options_->width);
  return row;
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

Status TableShard::update(std::span<const uint64_t> keys, const float* gradients, int64_t step,
                          double lr) {
  const size_t width = options_->width;
  found_.resize(keys.size());
  rows_.find(keys, found_);
  updated_.clear();
  const size_t floats = rows_.row_bytes() / sizeof(float);
  size_t left_out = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    fetch_ahead(i, floats);
    Row* row = found_[i];
    if (row == nullptr) {
      if (rows_.find(keys[i]) != nullptr) return twice(*options_, keys[i]);
      MUSTER_TRY(row, admit(keys[i], step));
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
    if (left_out > 0)
      std::copy_n(gradients + i * width, width, &gradients_[updated_.size() * width]);
    updated_.push_back(row->values());
  }
  options_->optimizer.update(updated_, left_out > 0 ? gradients_.data() : gradients, width,
                             step + 1, lr);
  return {};
}

void TableShard::evict(int64_t step, const std::function<void(const Row&)>& evicted) {
  const Eviction& rule = options_->eviction;
  const auto evict_row = [&](Row& row) {
    if (evicted) evicted(row);
    tombstones_.push_back({row.key, static_cast<uint32_t>(step)});
    rows_.erase(&row);
  };
  if (rule.age > 0) {
    const auto is_old = [&](const Row& row) { return row.used + int64_t{rule.age} < step; };
    rows_.for_each([&](Row& row) {
      if (is_old(row)) evict_row(row);
    });
    candidates_.for_each([&](Row& row) {
      if (is_old(row)) candidates_.erase(&row);
    });
  }
  if (rule.most > 0 && rows_.size() > rule.most) {
    std::vector<Row*> all;
    all.reserve(rows_.size());
    rows_.for_each([&](Row& row) { all.push_back(&row); });
    const auto keep = static_cast<ptrdiff_t>(rule.most);
    std::ranges::nth_element(all, all.begin() + keep, [](const Row* a, const Row* b) {
      if (a->sights != b->sights) return a->sights > b->sights;
      if (a->used != b->used) return a->used > b->used;
      return a->key < b->key;
    });
    for (auto one = all.begin() + keep; one != all.end(); ++one) evict_row(**one);
  }
  forget_tombstones();
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
  Hash128 sum;
  const auto add_row = [&](const Rows& rows, const Row& row) {
    // Behind the values there may be unused bytes, which are zero.
    add(sum, hash128(std::span(reinterpret_cast<const std::byte*>(&row), rows.row_bytes())));
  };
  rows_.for_each([&](const Row& row) { add_row(rows_, row); });
  candidates_.for_each([&](const Row& row) { add_row(candidates_, row); });
  for (const Tombstone& tombstone : tombstones_) {
    const uint64_t words[] = {tombstone.key, tombstone.step};  // without padding
    add(sum, hash128(std::as_bytes(std::span(words))));
  }
  if (tombstones_after_ > 0) add(sum, hash128(std::as_bytes(std::span(&tombstones_after_, 1))));
  return sum;
}

Status TableShard::put(uint64_t key, uint32_t used, uint16_t sights,
                       std::span<const float> values) {
  Rows& rows = values.empty() ? candidates_ : rows_;
  if (rows_.find(key) != nullptr || candidates_.find(key) != nullptr) return twice(*options_, key);
  Row* const row = rows.insert(key);
  if (row == nullptr) return no_room(*options_, rows);
  row->used = used;
  row->sights = sights;
  std::ranges::copy(values, row->values());
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
