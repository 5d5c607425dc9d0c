// The rows of a job's tables as the training loop sees them: a RowSource for nets, and what a step,
// a checkpoint and a recovery need besides.
//
// Rows are not part of the arena. They are on parameter servers (muster/ps), or in the memory of
// the only worker; either gives the same bits. A lane's gradients are added before the commit of
// its step (wait), and the rows change after it (commit). What a lane adds twice counts once, so
// that a step may be computed again, by anybody.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/model/rows.h"

namespace muster::train {

class StepRows : public model::RowSource {
 public:
  // The learning rate of rows in a step. Before the first one.
  virtual void set_learning_rate(std::function<double(int64_t step)> rate) = 0;
  // While it is on, reads give first weights, and gradients are dropped: for computations that are
  // no part of the training. Not while lanes are computed.
  virtual void rehearse(bool on) = 0;

  // Whether reading is faster if rows were asked for before.
  virtual bool wants_prefetch() const { return false; }
  // This lane of a step is going to read these rows, and no others. They ascend.
  virtual void prefetch(int64_t /*step*/, int /*lane*/, std::span<const uint64_t> /*keys*/) {}

  // Until what was added cannot be lost any more.
  virtual Status wait() = 0;
  // A step is committed, and every worker knows it: rows change. One worker says so; a second time
  // it has no effect. Returns at once.
  virtual Status commit(int64_t step) = 0;

  // Is called while hash(), save() and load() wait, as rows come: of a large job these take longer
  // than a worker may be silent. Not while they are used.
  virtual void set_progress(const std::function<void()>& progress) = 0;
  // Whether they can be saved as they are after so many steps: nobody has gone on.
  virtual Result<bool> is_at(int64_t /*step*/) { return true; }
  // As they are after so many steps: a hash, or all of them, by shard.
  virtual Result<Hash128> hash(int64_t step) = 0;
  virtual Result<std::vector<std::string>> save(int64_t step) = 0;
  // In place of what there is. Empty ones, or none: as at the beginning of the job. All workers of
  // a group do that together; `era` is the group's number, larger than that of any before
  // (ps/table_data.h), or 0 for a worker alone.
  virtual Status load(std::vector<std::string> shards, uint64_t era) = 0;
  // After an error, asked once: whether the reason is that other workers have gone on. They have
  // given this one up, which may not know it yet.
  virtual bool take_overtaken() = 0;
  // The era of the state that is trained.
  virtual void set_era(uint64_t era) = 0;
};

// Of a result: weights and rows.
inline std::string hash_of_all(const Hash128& weights, const Hash128& rows) {
  const Hash128 both[] = {weights, rows};
  return hash128(std::as_bytes(std::span(both))).hex();
}

}  // namespace muster::train
