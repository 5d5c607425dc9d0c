// One shard of a table: the rows of those keys that fall into it.
//
// A table has no vocabulary. Every 64-bit key has weights from the beginning: those that follow
// from (seed, table, key). A row is made, and takes memory, when its key gets its first gradient
// that is admitted. So reading changes nothing: what a table holds follows from the updates alone,
// in their order, and two servers that apply the same updates have the same rows, bit for bit.
//
// Admission. Most keys of a click log are seen once or twice and teach nothing. A key gets a row at
// its `sights`-th update, or at each with a probability, drawn from (seed, table, key, step). Until
// then its updates are dropped, and it is counted in 20 to 30 bytes, until it is too old.
//
// Eviction. Rows that were not updated for `age` steps go; and if there are more than `most` rows
// in the shard, those with the fewest sights, of these the longest unused. A key that was evicted
// has its initial weights again. Both need a scan of the shard, so TableData does it now and then.
//
// Tombstones tell an export (`muster export --since`) what has gone. A shard keeps those of the
// last evictions: as many as it has rows, and kFewTombstones more. So they take a fraction of the
// memory of rows, and how far back they reach follows from how many rows come and go.
//
// Where rows are, in memory or on disk (tiered_rows.h), has no effect on any of this. An error of
// the disk makes update() and put() fail; who calls anything else asks ColdTier::failure().
//
// One thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/ps/row_optimizer.h"
#include "muster/ps/tiered_rows.h"

namespace muster::ps {

struct Admission {
  uint16_t sights = 1;     // 1: at once
  double probability = 1;  // of each update
};

// Steps between two scans of a shard. A scan reads every row of the shard, a step a few of them: at
// 64 a scan of 100,000 rows adds to each step what 1,600 more rows would. For that long there may
// be rows that are too old, or too many.
inline constexpr uint32_t kEvictEvery = 64;

// `age` and `every` are in units of the shard's clock (TableData).
struct Eviction {
  uint32_t age = 0;   // 0: never
  uint64_t most = 0;  // rows of a shard; 0: any number
  uint32_t every = kEvictEvery;
  bool any() const { return age > 0 || most > 0; }
};

// There is no normal distribution: log and cos of C libraries differ in the last bit.
enum class InitialWeights : uint8_t { kZero, kUniform };

struct TableOptions {
  uint32_t id = 0;
  std::string name;
  uint32_t width = 0;
  InitialWeights initial = InitialWeights::kUniform;
  double scale = 0.05;  // uniform: in [-scale, scale)
  uint64_t seed = 0;
  RowOptimizer optimizer;
  Admission admission;
  Eviction eviction;
  uint32_t versions = 0;  // so many updates back rows can still be read (TableData::read)
};

// Whether a table can have these.
Status check(const TableOptions& options);

// The weights that a key has before its first update.
void initial_weights(const TableOptions& options, uint64_t key, std::span<float> weights);

struct Tombstone {
  uint64_t key;
  uint32_t step;  // as of which the row was evicted
};
inline constexpr size_t kFewTombstones = 4096;

// Of rows, candidates and tombstones; the same for the same ones, in whatever order they come.
class ContentsHash {
 public:
  // Where it is does not count. Behind the values there may be unused bytes, which are zero.
  void add(Row& row, size_t row_bytes);
  void add(const Tombstone& tombstone);
  void add_tombstones_after(uint32_t step);
  const Hash128& value() const { return sum_; }

 private:
  // The sum of hashes does not depend on the order of what is hashed.
  void add(const Hash128& one);
  Hash128 sum_;
};

class TableShard {
 public:
  // `options`, `slabs` and `cold` must outlive this. `cold`: null: there is memory alone. `shard`:
  // its number, by which rows are told apart on disk.
  TableShard(const TableOptions& options, Slabs& slabs, ColdTier* cold = nullptr,
             uint32_t shard = 0);

  size_t rows() const { return rows_.size(); }
  size_t candidates() const { return candidates_.size(); }  // counted, without a row
  bool has_row(uint64_t key) { return rows_.contains(key); }
  const TableOptions& options() const { return *options_; }

  // weights[i * width ...] of keys[i]. Changes nothing that anyone can see.
  void read(std::span<const uint64_t> keys, float* weights);

  // One update of each key. `step`: counted from 0. An error: there is no memory for another row,
  // or a new key is there twice; some keys have been counted by then, so the shard must be given
  // up.
  Status update(std::span<const uint64_t> keys, const float* gradients, int64_t step, double lr);

  // Has rows of these keys read ahead that are on disk, for read() or for update(). The number of
  // the fetch to wait for, or 0.
  uint64_t fetch(std::span<const uint64_t> keys, bool update, RowFetcher& fetcher);
  void arrive(const FetchedRows& fetched);

  // What the rules above say, as of this step: those before it are complete. `evicted`, if there is
  // one, sees each row before it goes, in any order.
  using Evicted = std::function<void(uint64_t key, const float* weights)>;
  void evict(int64_t step, const Evicted& evicted = {});
  // In the order of their steps. They are all of those after step tombstones_after().
  const std::vector<Tombstone>& tombstones() const { return tombstones_; }
  uint32_t tombstones_after() const { return tombstones_after_; }

  // Of all that it holds. Whoever visits all of it may add it up meanwhile.
  Hash128 hash();
  size_t row_bytes() const { return rows_.row_bytes(); }
  size_t candidate_bytes() const { return candidates_.row_bytes(); }

  // For snapshots and moves: what for_each_row gives, in any order, put() makes again.
  template <typename Visit>
  void for_each_row(Visit visit) {
    rows_.for_each(visit);
  }
  template <typename Visit>
  void for_each_candidate(Visit visit) {
    candidates_.for_each(visit);
  }
  // `values`: weights and state; empty: a candidate. An error: the key is there, or no memory. If
  // there is a `hash`, it is added.
  Status put(uint64_t key, uint32_t used, uint16_t sights, std::span<const float> values,
             ContentsHash* hash = nullptr);
  void fetch_ahead(uint64_t key) const { rows_.fetch_ahead(key); }  // put() follows
  void reserve(size_t rows) { rows_.reserve(rows); }                // about to be put
  // In the order of tombstones(). False: it cannot be one of them.
  bool put(Tombstone tombstone);
  void set_tombstones_after(uint32_t step) { tombstones_after_ = step; }
  void clear();

 private:
  // `row`: for a key that has none; null: not yet. If there is no memory, nothing has changed, and
  // it returns who needs some.
  TieredRows* admit(uint64_t key, int64_t step, Row*& row);
  // The first keys; how many. Fewer than all if there is no memory for the next one: then `crowded`
  // needs some.
  Result<size_t> update_some(std::span<const uint64_t> keys, const float* gradients, int64_t step,
                             double lr, TieredRows*& crowded);
  Error no_room(const TieredRows& rows) const;
  void fetch_ahead(size_t i, size_t floats) const;
  void evict_least_seen(int64_t step, const Evicted& evicted);
  void forget_tombstones();

  const TableOptions* options_;
  ColdTier* cold_;
  TieredRows rows_;
  TieredRows candidates_;  // headers alone
  std::vector<Tombstone> tombstones_;
  uint32_t tombstones_after_ = 0;
  // Of one call; kept so that no memory is allocated for each.
  std::vector<Row*> found_;
  std::vector<float*> updated_;
  std::vector<float> gradients_;
};

}  // namespace muster::ps
