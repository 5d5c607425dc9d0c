// What one shard holds of all tables of a job (ShardData of shard_copy.h), and pushes as bytes.
//
// A push is a PushHeader, `count` keys (8 bytes each), and `count` x width floats (kStageRead:
// twice as many). The keys ascend, so none is there twice, and all fall into the shard.
//
// Three ways to update:
// - at once (kUpdate): the floats are a gradient, and rows change when the push is applied. No
//   program sends it: tests and benchmarks do. No era fences it, and the simulation has none;
// - step by step (kAdd, kCommit): the gradients of all lanes of a step are added up (step_sums.h),
//   each lane once, and become one update when the step is committed. Both may come again, from
//   another worker, and then have no effect. The clock counts the steps that are committed. A lane
//   may be ahead of it;
// - asynchronously (kStage or kStageRead, kApply): gradients wait until their place in the order of
//   all pushes is known (task_order.h), which one shard decides (kOrder), and become updates in
//   that order. The clock counts updates.
//
// Eviction (table.h) is a part of the push that moves the clock, at fixed numbers of it: so all
// copies of a shard evict the same rows at the same place of its order. Shards do it at different
// numbers, so that a server does not scan all of them in one step. kUpdate does not move the clock,
// and evicts nothing.
//
// Eras. Workers may go back to a checkpoint (kLoad), each of them with the same one. A worker that
// the others have given up may still be about to do what it began before. So each such return is an
// era of a larger number, that of the workers' group: what is of an earlier one has no effect, nor
// has a second load of the same.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/ps/old_rows.h"
#include "muster/ps/server_map.h"
#include "muster/ps/shard_copy.h"
#include "muster/ps/staged_pushes.h"
#include "muster/ps/step_sums.h"
#include "muster/ps/table.h"
#include "muster/ps/task_order.h"

namespace muster::ps {

// Part of the format: never renumber.
enum class PushKind : uint16_t {
  kUpdate = 0,
  kAdd = 1,
  kCommit = 2,  // this step of all tables, if it is the next one; no keys
  kLoad = 3,    // what save_rows() gave, in place of everything; nothing: begin anew. No keys
  kStage = 4,   // `step` is a ticket
  kApply = 5,   // places of pushes (apply_bytes). No keys
  kOrder = 6,   // an operation of TaskOrder (order_bytes). No keys
  // The same as kStage; behind the gradient of each row are the weights that it was computed from.
  kStageRead = 7,
};

// How many floats a push of this kind has for each row of such a width.
size_t floats_of(PushKind kind, size_t width);

struct PushHeader {
  PushKind kind = PushKind::kUpdate;
  uint16_t lane = 0;   // of kAdd
  uint32_t table = 0;  // its id
  uint32_t count = 0;  // of keys
  uint32_t unused = 0;
  uint64_t era = 0;  // of all but kUpdate
  int64_t step = 0;  // from 0
  double lr = 0;
};
static_assert(sizeof(PushHeader) == 40);

// `keys` ascend; `gradients`: one row after the other, as its kind has them. `header.count` is set.
std::string push_bytes(PushHeader header, std::span<const uint64_t> keys,
                       std::span<const float> gradients);

// Of those keys, and their `floats` gradients each, that are at these places.
Bytes push_bytes(PushHeader header, std::span<const uint64_t> keys,
                 std::span<const float> gradients, size_t floats, std::span<const uint32_t> places);

// A push of kLoad.
std::string load_bytes(uint64_t era, std::string_view contents);

// Pushes that have places, one after the other.
struct PlacedPushes {
  int64_t first = 0;    // the place of the first
  int64_t pushes = 1;   // that make one update
  uint64_t oldest = 0;  // OrderView::oldest
  struct Placed {
    uint64_t ticket = 0;
    float weight = 1;  // of its gradients
    // Of kStageRead, if an update is one push: for what has changed since it was computed
    // (compensate() of staged_pushes.h). 0: not at all.
    float compensation = 0;
  };
  std::vector<Placed> placed;
};
// A push of kApply, and one of kOrder.
std::string apply_bytes(uint64_t era, const PlacedPushes& pushes);
std::string order_push(uint64_t era, std::string_view operation);

class TableData final : public ShardData {
 public:
  // `tables`, `slabs` and `cold` must outlive it. The id of a table is its place. `cold`: null:
  // rows are in memory alone.
  TableData(ShardNumber shard, ShardNumber shards, std::span<const TableOptions> tables,
            Slabs& slabs, ColdTier* cold = nullptr);

  TableShard& table(uint32_t id) { return tables_[id]; }
  // Steps that are committed, or updates.
  int64_t clock() const { return clock_; }
  // That of the last load.
  uint64_t era() const { return era_; }
  const TaskOrder& order() const { return order_; }

  // Whether rows of a table can be read as they were when the clock was there.
  bool knows(uint32_t table, int64_t version) const;
  // weights[i * width ...] of keys[i], then. It must be known.
  void read(uint32_t table, std::span<const uint64_t> keys, int64_t version, float* weights);

  Status check(std::string_view push) const override;
  Status apply(std::string_view push) override;
  void save(std::string& to) override;
  Status load(std::string_view from) override;
  void clear() override;

  // The same without the sums of steps that are not committed: for checkpoints.
  void save_rows(std::string& to);

  // Of all rows, and the clock.
  Hash128 hash();

  // Has the rows that a push will change read ahead, if they are on disk and it does not change
  // them at once. It need not be well-formed.
  void fetch(std::string_view push, RowFetcher& fetcher);

 private:
  struct Parsed {
    PushHeader header;
    std::span<const uint64_t> keys;
    const float* gradients = nullptr;
  };
  // Copies what does not lie where numbers of its kind may.
  Result<Parsed> parse(std::string_view push);
  Status check_header(std::string_view push, PushHeader& header) const;
  Status check_load(std::string_view contents) const;
  void add(const Parsed& push);
  void stage(const Parsed& push);
  Status commit(int64_t step);
  // Before and after rows change, by one tick of the clock. Rows that are due are evicted with it.
  Status update(uint32_t table, std::span<const uint64_t> keys, const float* gradients, double lr);
  void tick();
  Status apply_placed(std::string_view body);
  void evict(uint32_t table);
  Status apply_update();
  Status begin_era(uint64_t era, std::string_view contents);
  Hash128 hash_with(std::span<const Hash128> tables) const;
  std::vector<Hash128> save_tables(std::string& to);
  void save_sums(std::string& to);
  Status load_sums(std::string_view& from);
  Status load_tasks(std::string_view& from);
  Status load_old(std::string_view& from);
  Status load_table(TableShard& table, std::string_view& from, ContentsHash& hash);

  const ShardNumber shard_;
  const ShardNumber shards_;
  const std::span<const TableOptions> options_;
  std::vector<TableShard> tables_;
  int64_t clock_ = 0;
  uint64_t era_ = 0;
  std::map<int64_t, std::vector<StepSums>> sums_;  // by step, which is not committed, and table
  StagedPushes staged_;
  TaskOrder order_;      // of the first shard; elsewhere empty
  size_t versions_ = 0;  // of the table that keeps the most
  OldRows old_;
  // Of one call.
  std::vector<uint64_t> keys_;
  std::vector<float> gradients_;
  std::vector<float> values_;
  std::vector<float> read_;  // that gradients were computed from
};

}  // namespace muster::ps
