// Blocks in memory: fetched ahead by the step in which they are due, dropped after their last row
// was taken when others need the room.
//
// The future is known (schedule.h), so there is no policy to choose: the block that is due first is
// fetched first, as long as it fits in the memory that is given; blocks that are due within the
// steps that the loader reads ahead are fetched in any case. A reader that needs a block that is
// not there waits for it; such blocks are fetched before all others. Data that fits as a whole is
// fetched once. No more than a pass is looked ahead.
//
// Blocks are kept as they are stored. The first reader decodes one, and the decoded form stays for
// as long as the block does; the stored bytes too, if the decoded form refers to them. What is
// counted is what a block holds now. Before one is fetched ahead, it and those that are not decoded
// yet count as much as they are likely to hold then: by the mean of the blocks decoded so far.
//
// Errors. Waiting for a store that is away, and sending a late request a second time, is left to
// the store (store/retry.h); what it waits for is part of waiting(). Bytes that do not have their
// hash are read again, then given up as damaged. The error of a block is kept with it and given to
// its readers: a block that nobody reads fails nobody. After an error that may pass (kIo) the next
// reader has it fetched again.
//
// Threads: `threads` of its own, named "fetch". They call the store and the disk cache. Readers
// only wait. The destructor interrupts requests under way; with a store that cannot be interrupted
// it waits for them. A block is written to the disk cache by the thread that fetched it, after its
// readers have it: a slow disk holds up the next fetch of that thread, and no reader.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/base/thread.h"
#include "muster/data/blocks/block_format.h"
#include "muster/data/blocks/block_index.h"
#include "muster/data/blocks/block_memory.h"
#include "muster/data/blocks/disk_cache.h"
#include "muster/data/blocks/schedule.h"
#include "muster/data/dataset.h"
#include "muster/data/fetcher.h"
#include "muster/store/store.h"

namespace muster::data {

// None of this changes a batch.
struct FetchOptions {
  uint64_t memory = uint64_t{1} << 30;  // bytes of blocks, those in use included
  int threads = 8;                      // requests at a time
  int tries = 3;                        // of a block whose bytes do not have their hash
};

// A block as it was read, and what it was decoded to. Safe for concurrent use, bytes() apart.
class LoadedBlock {
 public:
  explicit LoadedBlock(BlockBytes bytes)
      : bytes_(std::make_shared<const BlockBytes>(std::move(bytes))) {}
  // Only while nobody else may call decoded(), which gives the bytes up if they are not needed any
  // more; then null.
  std::shared_ptr<const BlockBytes> bytes() const { return bytes_; }
  // Decoded by whoever asks first; the others wait. The error is the format's.
  const Result<std::unique_ptr<DecodedBlock>>& decoded(const BlockFormat& format, uint32_t count,
                                                       const Schema& schema);
  // True for whoever asks first.
  bool is_new() { return !seen_.test() && !seen_.test_and_set(); }

 private:
  std::shared_ptr<const BlockBytes> bytes_;
  std::atomic_flag seen_;
  std::once_flag once_;
  Result<std::unique_ptr<DecodedBlock>> decoded_ = std::unique_ptr<DecodedBlock>();
};

// Safe for concurrent use.
class BlockCache final : public Fetcher {
 public:
  // Index, store and disk cache (null: none) must outlive it.
  BlockCache(const BlockIndex& index, store::Store& store, DiskCache* disk,
             const FetchOptions& options);
  ~BlockCache() override;
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  void follow(const ReadPlan& plan) override;
  void pause() override;
  void taken(uint64_t step, int lane) override;
  std::string waiting() const override;

  // Some blocks that are about to be read, all different. All of them are requested at once.
  class Reading {
   public:
    Reading(BlockCache& cache, std::vector<uint32_t> blocks);
    ~Reading();
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    // Number `i` of them. Waits until it is there; errors: it cannot be had, or `keep_waiting` said
    // no (kInterrupted).
    Result<std::shared_ptr<LoadedBlock>> get(size_t i, const KeepWaiting& keep_waiting);
    // After get() of number `i` gave an error: whether it is that the bytes do not have their hash.
    bool is_damaged(size_t i) const;
    // Number `i` was decoded to this. To be called once for each LoadedBlock.
    void note_decoded(size_t i, const DecodedBlock& decoded);

   private:
    BlockCache& cache_;
    const std::vector<uint32_t> blocks_;
  };

  struct Counters {
    uint64_t fetched = 0;  // blocks, from the store
    uint64_t fetched_bytes = 0;
    uint64_t from_disk = 0;  // blocks, from the disk cache
    uint64_t waited = 0;     // blocks that a reader had to wait for
    uint64_t damaged = 0;    // blocks read whose bytes did not have their hash
    uint64_t blocks = 0;     // in memory now, or being fetched
    uint64_t bytes = 0;
    uint64_t most_bytes = 0;  // ever
    uint64_t uses = 0;        // that were looked ahead to and are not over
  };
  Counters counters() const;

 private:
  enum class State : uint8_t { kAbsent, kFetching, kReady, kFailed };
  struct Entry {
    State state = State::kAbsent;
    std::shared_ptr<LoadedBlock> block;
    std::optional<Error> error;
    bool damaged = false;   // the error is that its bytes do not have their hash
    bool decoded = false;   // else its bytes are counted in undecoded_ too
    uint64_t bytes = 0;     // counted in bytes_
    uint64_t written = 0;   // of them, those that were decoded and are only kept to be written
    int holders = 0;        // uses of the schedule that are not over
    int readers = 0;        // that wait for it, or read it
    bool demanded = false;  // in demanded_
    bool loose = false;     // in loose_
    bool writing = false;   // to the disk cache; it and its stored bytes stay, and count, so long
    Moment wanted;          // since when a reader waits
  };
  struct LaterLast {
    bool operator()(const BlockUse& a, const BlockUse& b) const { return a.last > b.last; }
  };
  // What is fetched ahead for one lane.
  struct LaneAhead {
    int lane = 0;
    uint64_t needed = 0;                      // the first step that was not taken yet
    std::unique_ptr<BlockSchedule> schedule;  // null: not made yet
    bool planning = false;                    // a thread computes the next use
    bool ended = false;
    std::optional<BlockUse> next;
    // Begun, not over; on top the one that ends first.
    std::priority_queue<BlockUse, std::vector<BlockUse>, LaterLast> held;
  };

  void fetch_loop();
  bool plan_one(std::unique_lock<std::mutex>& lock);
  std::optional<uint32_t> claim();
  std::optional<uint32_t> claim_ahead();
  bool is_far(uint64_t steps_left) const;
  bool fits(uint64_t length) const;
  void begin(uint32_t number, Entry& entry);
  void finish(uint32_t number, Result<BlockBytes> bytes, bool damaged);
  void release(LaneAhead& lane);
  void drop_if_unused(uint32_t number);
  void make_room();
  void demand(uint32_t number, Entry& entry);
  void stop_following();
  struct Fetched {
    Result<BlockBytes> bytes;
    bool damaged = false;    // the error is that the bytes do not have their hash
    bool from_disk = false;  // from the disk cache
  };
  Fetched fetch(uint32_t number);
  Status fetch_from_store(uint32_t number, std::span<std::byte> bytes, bool& damaged);
  Result<BlockBytes> memory_for(uint32_t number);
  void keep_on_disk(uint32_t number, std::unique_lock<std::mutex>& lock);

  const BlockIndex& index_;
  store::Store& store_;
  DiskCache* const disk_;
  const FetchOptions options_;
  const std::shared_ptr<BlockMemory> memory_;
  std::stop_source stop_;  // of requests

  mutable std::mutex mutex_;
  std::condition_variable work_;   // for fetch threads
  std::condition_variable ready_;  // for readers
  // Guarded by mutex_ from here on.
  std::unordered_map<uint32_t, Entry> entries_;
  std::deque<uint32_t> demanded_;  // by readers, not begun
  std::set<uint32_t> wanted_;      // that readers wait for
  std::deque<uint32_t> loose_;     // read, though no use of the schedule holds them; oldest first
  ReadPlan plan_;                  // its lanes are in lanes_
  uint64_t generation_ = 0;        // of follow()
  std::vector<LaneAhead> lanes_;
  uint64_t bytes_ = 0;
  uint64_t undecoded_ = 0;  // of them, of blocks that were not decoded yet
  // Of all blocks that were ever decoded: what they held before, and afterwards.
  uint64_t before_decoding_ = 0;
  uint64_t after_decoding_ = 0;
  uint64_t held_bytes_ = 0;  // of all uses that lanes hold, a block as often as it is held
  bool stopping_ = false;
  Counters counters_;

  std::vector<Thread> threads_;  // last: they start when everything else is there
};

}  // namespace muster::data
