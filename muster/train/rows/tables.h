// The tables of a job, wherever they are: on parameter servers (served_tables.h), or in the memory
// of the only worker (local_tables.h). The same operations on either give the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/ps/net/control.h"
#include "muster/ps/table_data.h"

namespace muster::train {

// Rows that were asked for (Tables::begin_read). May outlive none of its tables.
class RowsRead {
 public:
  virtual ~RowsRead() = default;
  // Waits for them. False: shards have gone on, and do not know what they were any more. `if_late`
  // is called once if that takes longer than usual; it may be empty.
  virtual Result<bool> finish(float* rows, const std::function<Status()>& if_late) = 0;
};

// Safe for concurrent use.
class Tables {
 public:
  virtual ~Tables() = default;
  virtual const ps::TablesSetup& setup() const = 0;
  // Whether there may be others who push.
  virtual bool is_shared() const = 0;

  // Rows as they are when all shards' clocks are there, or later. `clocks`: those of the shards
  // that have keys of these, in the order of their numbers.
  virtual Status read(uint32_t table, std::span<const uint64_t> keys, int64_t clock, float* rows,
                      std::vector<int64_t>& clocks) = 0;
  // Rows as they are when the clock is exactly there. Returns at once.
  virtual Result<std::unique_ptr<RowsRead>> begin_read(uint32_t table,
                                                       std::span<const uint64_t> keys,
                                                       int64_t clock) = 0;

  // These return at once. A gradient for each key, as its kind has it (ps::floats_of); no key
  // twice.
  virtual Status push(const ps::PushHeader& header, std::span<const uint64_t> keys,
                      std::span<const float> gradients) = 0;
  virtual Status commit(uint64_t era, int64_t step) = 0;
  virtual Status apply(uint64_t era, const ps::PlacedPushes& pushes) = 0;
  virtual Status push_order(uint64_t era, std::string_view operation) = 0;
  // Until what was pushed cannot be lost any more.
  virtual Status wait() = 0;

  // With everything that was pushed before the last wait().
  virtual Result<ps::OrderView> order(uint64_t worker, int64_t from, bool results) = 0;

  // Is called while hash(), save() and load() wait, as rows come. Not while they are used.
  virtual void set_progress(const std::function<void()>& /*progress*/) {}
  // All rows, as they are when the clock of that era is exactly there: a hash, or all of them, by
  // shard. An error of the kind kInternal if it is past that, or in another era.
  virtual Result<Hash128> hash(uint64_t era, int64_t clock) = 0;
  virtual Result<std::vector<std::string>> save(uint64_t era, int64_t clock) = 0;
  // In place of what there is. An empty one: as at the beginning of the job.
  virtual Status load(uint64_t era, std::span<const std::string> shards) = 0;
};

// `registry`: the address of the job's parameter servers; empty: in this process.
Result<std::unique_ptr<Tables>> open_tables(const config::Job& job, const std::string& registry);

}  // namespace muster::train
