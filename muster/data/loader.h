// The loader: batches of (step, lane), read ahead.
//
// What a batch holds is a pure function of (data, plan, step, lane); the loader only decides when
// and by whom it is computed, so threads and reading ahead cannot change it.
//
// Threads: `threads` prefetch threads, named "prefetch", owned by the loader, asleep unless there
// is about a step's worth of work. Lane threads call take(). They wait only for a batch that is
// being filled at that moment; one that nobody has begun they fill themselves. So a prefetch thread
// that gets no core costs nothing, no step can hang on it, and redoing a step needs no rewinding.
//
// Data that is streamed (fetcher.h) may not be there yet, or may be damaged. Whoever fills a batch
// waits for it. A prefetch thread whose fill fails leaves the batch to the taker, who then gets the
// error from the same place: an error reaches the step that needs the sample, and no other. Damage
// can be told instead of being an error (LoaderPlan::finds_damage); the caller then says which
// blocks are damaged (replace), and what is read instead of them is again a pure function.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "muster/base/result.h"
#include "muster/base/thread.h"
#include "muster/data/augment.h"
#include "muster/data/batch.h"
#include "muster/data/blocks/replacements.h"
#include "muster/data/dataset.h"
#include "muster/data/fetcher.h"
#include "muster/data/plan.h"
#include "muster/data/sample_order.h"

namespace muster::data {

struct LoaderPlan {
  uint64_t seed = 1;
  BatchPlan batches;  // batch size, lanes of the whole job, end of the stream
  // Of all samples of the data; null: full, by seed.
  std::shared_ptr<const SampleOrder> order = {};  // NOLINT(readability-redundant-member-init)
  Augmenter augment;
  int threads = 1;     // 0: whoever takes a batch fills it
  uint64_t ahead = 2;  // steps; 0: as with no threads
  // Lanes whose batches of one step are taken at about the same time; 0: all. Others may be many
  // steps behind or ahead of them.
  uint64_t together = 0;
  Memory* memory = &host_memory();  // where its batches are
  // Called by a prefetch thread with each batch that it has read ahead; may be empty.
  // NOLINTNEXTLINE(readability-redundant-member-init): GCC wants it where others are initialized
  std::function<void(const Batch& batch)> filled = {};
  // Called about every 50 ms by a taker that waits for data that is streamed, outside of all locks:
  // the place to say that this worker is alive, and to end the wait (false).
  KeepWaiting keep_waiting = {};  // NOLINT(readability-redundant-member-init)
  // If a block is damaged, take() gives a batch without samples that says so (Batch::damage), not
  // an error.
  bool finds_damage = false;
};

// Computes one batch: the samples of this lane in this step, in their order, augmented. Pure; the
// batch gets what room it needs. Fails only for data that is streamed.
Status fill_batch(const Dataset& dataset, const SampleOrder& order, const LoaderPlan& plan,
                  uint64_t step, int lane, Batch& batch);

// Safe for concurrent use.
class Loader {
 public:
  // Reads ahead for `lanes` (those this worker computes), from `first_step` on. The data set must
  // outlive the loader.
  Loader(const Dataset& dataset, const LoaderPlan& plan, const std::vector<int>& lanes,
         uint64_t first_step);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The batch of any lane of the job at any step, as often as one likes; one that was not read
  // ahead (a step redone, a lane of another worker) is filled by the caller. Empty (count 0) past
  // the end of the stream. Fails only for data that is streamed: kInterrupted if keep_waiting
  // ended the wait; else the data cannot be read or is damaged, and the error names the object.
  Result<BorrowedBatch> take(uint64_t step, int lane);
  // "waiting for data: 3 requests, oldest 1.2 s", or "" when nothing waits for data.
  std::string waiting() const;

  // From now on samples of these blocks of the data are replaced, and of no others; what was read
  // ahead is dropped, and steps are read ahead from `step` on. Quick if they are those
  // that are replaced already. Not while batches are taken. Errors, with nothing changed, are those
  // of Replacements::make.
  Status replace(std::span<const uint64_t> damaged, uint64_t step);

  // From now on reads ahead for these lanes from this step: after a recovery or a change of roster.
  // Borrowed batches stay valid.
  void restart(uint64_t step, const std::vector<int>& lanes);
  // The same with another end of the stream or another place in it, from batches.first_step on.
  // Batch size and number of lanes stay the same.
  void restart(const BatchPlan& batches, const std::vector<int>& lanes);

  // Steps of the whole job.
  uint64_t steps() const;

  struct Counters {
    uint64_t ready = 0;    // was there when it was taken
    uint64_t waited = 0;   // was being filled
    uint64_t by_hand = 0;  // filled by whoever took it
    uint64_t buffers = 0;  // ever made; stops growing once the job runs
  };
  Counters counters() const;

 private:
  enum class State { kEmpty, kFilling, kReady };
  struct ReadAhead {
    State state = State::kEmpty;
    uint64_t step = 0;
    std::unique_ptr<Batch> batch;
  };
  // What is read ahead for one lane: steps [needed, needed + ahead), step s in buffer s % ahead.
  struct Lane {
    int lane = 0;
    uint64_t needed = 0;  // the first step that was not taken yet
    uint64_t next = 0;    // the next step to read ahead
    std::vector<ReadAhead> buffers;
  };
  struct Claim {
    size_t lane_index = 0;
    int lane = 0;
    uint64_t step = 0;
    Slice slice;
    std::shared_ptr<const Replacements> replacements;
    uint64_t generation = 0;
  };

  void restart(const BatchPlan& batches, uint64_t step, const std::vector<int>& lanes);
  void prefetch();
  void reset(uint64_t step, const std::vector<int>& lanes);
  uint64_t claimable(const Lane& lane) const;
  Claim claim();
  void deliver(const Claim& claim, std::unique_ptr<Batch> batch, bool filled);
  Result<std::unique_ptr<Batch>> take_prefetched(std::unique_lock<std::mutex>& lock, uint64_t step,
                                                 int lane);

  const Dataset& dataset_;
  const LoaderPlan plan_;  // except where its steps begin and end: batches_
  const std::shared_ptr<const SampleOrder> order_;
  Fetcher* const fetcher_;  // null for data in memory
  const std::shared_ptr<BatchPool> pool_;
  const bool reads_ahead_;

  mutable std::mutex mutex_;
  std::condition_variable work_;   // for prefetch threads: there is something to claim, or the end
  std::condition_variable ready_;  // for takers: a buffer is no longer being filled
  // Guarded by mutex_ from here on.
  BatchPlan batches_;
  std::vector<int> lane_numbers_;                     // of the last restart()
  std::shared_ptr<const Replacements> replacements_;  // null: nothing is replaced
  std::vector<Lane> lanes_;
  std::vector<int> index_of_;  // lane number to its index in lanes_, or -1
  uint64_t unclaimed_ = 0;     // sum of claimable() over lanes_
  size_t turn_ = 0;            // the lane to look at first for the next claim
  uint64_t generation_ = 0;    // of restart(): what was begun before it is dropped
  int sleeping_ = 0;           // prefetch threads that wait for work
  bool stopping_ = false;
  Counters counters_;

  std::vector<Thread> threads_;  // last: they start when everything else is there
};

}  // namespace muster::data
