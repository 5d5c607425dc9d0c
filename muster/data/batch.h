// Samples side by side in memory, as a step takes them, and the pool their buffers return to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "muster/base/memory.h"
#include "muster/base/result.h"
#include "muster/data/dataset.h"
#include "muster/data/schema.h"

namespace muster::data {

// `count` samples: inputs one after the other without gaps, likewise targets. The buffers may be
// longer than that.
struct Batch {
  Memory* memory = &host_memory();  // where its buffers are
  Buffer inputs;
  Buffer targets;
  uint64_t count = 0;
  std::vector<uint64_t> samples;  // which ones, by their number in the data set
  uint64_t step = 0;
  int lane = 0;
  // How many of them are read in place of samples of damaged blocks (blocks/replacements.h).
  uint64_t replaced = 0;
  std::optional<Damage> damage;  // why it has no samples (LoaderPlan::finds_damage)

  // Makes room; keeps nothing. Buffers that are large enough stay where they are.
  void reserve(const Schema& schema, uint64_t samples_wanted);
};

// These samples in this order, as they are: no shuffling, no augmentation. For evaluation. Fails
// only for data that is streamed (Dataset::read_all).
Status read_samples(const Dataset& dataset, std::span<const uint64_t> samples, Batch& batch,
                    const KeepWaiting& keep_waiting = {});
// Samples [first, first + count), cut at the end of the data.
Status read_range(const Dataset& dataset, uint64_t first, uint64_t count, Batch& batch,
                  const KeepWaiting& keep_waiting = {});

// Batches to be used again and again, so that training does not allocate once it runs. Safe for
// concurrent use.
class BatchPool {
 public:
  BatchPool(Schema schema, uint64_t capacity, Memory& memory)
      : schema_(std::move(schema)), capacity_(capacity), memory_(memory) {}

  // One with room for `capacity` samples: a used one if there is any, the last returned first,
  // because it is most likely still in cache.
  std::unique_ptr<Batch> acquire();
  void give_back(std::unique_ptr<Batch> batch);
  // How many were ever made.
  uint64_t made() const;

 private:
  const Schema schema_;
  const uint64_t capacity_;
  Memory& memory_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Batch>> free_;  // guarded by mutex_
  uint64_t made_ = 0;                         // guarded by mutex_
};

// A batch on loan. It goes back to its pool when this object is destroyed, which may outlive the
// loader.
class BorrowedBatch {
 public:
  BorrowedBatch() = default;
  BorrowedBatch(std::shared_ptr<BatchPool> pool, std::unique_ptr<Batch> batch)
      : pool_(std::move(pool)), batch_(std::move(batch)) {}
  BorrowedBatch(BorrowedBatch&&) noexcept = default;
  BorrowedBatch& operator=(BorrowedBatch&& other) noexcept;
  ~BorrowedBatch() { release(); }

  explicit operator bool() const { return batch_ != nullptr; }
  Batch& operator*() const { return *batch_; }
  Batch* operator->() const { return batch_.get(); }
  void release();

 private:
  std::shared_ptr<BatchPool> pool_;
  std::unique_ptr<Batch> batch_;
};

}  // namespace muster::data
