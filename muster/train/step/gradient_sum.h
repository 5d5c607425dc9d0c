// Where the gradients of the lanes meet.
//
// Each lane adds its gradient tensor by tensor, as backward produces it. With Mode::kExact the sum
// is in block fixed point (muster/exact), so it does not depend on which lane came first; with
// kNative it is plain float and does. kDry only looks at magnitudes: the first step of a job uses
// it to find its scales.
//
// Usually all lanes of a worker are added up in one buffer. With groups, each group of lanes has a
// buffer of its own, which something else then does something with (few_bits.h).
//
// The buffer is cut into buckets of whole blocks. A bucket is what one lane locks at a time and,
// with several workers, what is exchanged at a time (sum_exchange.h), as soon as all lanes of this
// worker have added to it; its size has no effect on bits.
//
// Threads: begin(), flush(), abandon() and all reading belong to one thread, with no add() running.
// add() may run on any number of threads, each with a lane of its own. wait_complete() and the
// buckets it has returned are for one more thread, that of the exchange.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "muster/base/memory.h"
#include "muster/exact/block_layout.h"
#include "muster/exact/fixed_point.h"
#include "muster/exact/rotation.h"

namespace muster::train {

// A bucket is what travels at a time: of elements with `bits` bits it holds correspondingly more.
// `bucket`: bytes of one whose elements have all bits. Returns the bytes of its sums in memory.
inline size_t bucket_bytes(int64_t bucket, int64_t bits) {
  return static_cast<size_t>(bucket * exact::SumFormat::kAllBits / bits);
}

class GradientSum {
 public:
  enum class Mode { kExact, kNative, kDry };

  // `layout` must outlive this. `lanes` of the whole job. Tensors from `late` on are added after
  // backward (statistics), so their buckets are exchanged last.
  GradientSum(const exact::BlockLayout& layout, int lanes, size_t bucket_bytes, size_t late,
              Memory& memory = host_memory());
  GradientSum(const exact::BlockLayout& layout, int lanes, size_t bucket_bytes)
      : GradientSum(layout, lanes, bucket_bytes, layout.tensors()) {}

  // How lanes round their gradients.
  struct Rounding {
    bool stochastic = false;  // exact::Stochastic; else to nearest, which needs all bits
    uint64_t seed = 0;        // of the random numbers
    // Of a lane (exact::SumFormat). Tensors from `late` on always have all bits.
    int bits = exact::SumFormat::kAllBits;
    bool rotated = false;  // exact::rotate comes first; only with fewer than all bits
  };
  // At first to nearest, with all bits. Before the first begin().
  void set_rounding(const Rounding& rounding);
  // Of so many groups, lane l belongs to number l * groups / lanes. Before the first begin().
  void set_groups(int groups);
  int group_of(int lane) const { return groups_ == 1 ? 0 : lane * groups_ / lanes_; }

  // Starts the sum of a step, to which these lanes of this worker will be added, all lanes of each
  // group or none. exponents: one per block, from which scales are made; must not change while the
  // block is in use.
  void begin(Mode mode, std::span<const uint8_t> exponents, std::span<const int> own_lanes,
             int64_t step = 0);
  // After begin(), for an audit (audit.h): hashes what lane `own` adds, and what lane `other`,
  // which is no lane of this worker, would add; that one is not added. -1: none. Only with kExact.
  void watch(int own, int other);
  uint64_t own_hash() const { return own_.hash.load(std::memory_order_relaxed); }
  uint64_t other_hash() const { return other_.hash.load(std::memory_order_relaxed); }
  void add(int lane, size_t tensor, const float* gradient);
  // A part of it: the elements from `first` on, which must be the beginning of a block; all parts
  // must cover the tensor once. Parts of one lane may be added by several threads.
  void add_part(int lane, size_t tensor, size_t first, std::span<const float> part);
  // Everything has been added. Blocks that nobody added to are zero.
  void flush();
  // The lanes failed: the sum will never be complete.
  void abandon();

  Mode mode() const { return mode_; }
  // How a block is written with kExact.
  exact::SumFormat format(size_t block) const {
    return {lanes_, block < late_block_ ? rounding_.bits : exact::SumFormat::kAllBits};
  }
  // The first tensor that was not finite in a lane, in the order of backward; -1: all were.
  int64_t not_finite(int lane) const {
    return not_finite_[static_cast<size_t>(lane)].load(std::memory_order_relaxed);
  }
  // The largest exponent byte that any lane of this worker had in each block.
  std::span<const uint8_t> seen() const { return seen_; }
  // Buckets, in the order in which backward completes them.
  std::span<const size_t> exchange_order() const { return order_; }
  // Waits until all lanes have added to the bucket; false if they were abandoned.
  bool wait_complete(size_t bucket);
  // The sums of a bucket, padding between tensors (zeros) included.
  std::span<int32_t> int_bucket(size_t bucket);
  std::span<float> float_bucket(size_t bucket);
  // Whether its sums are of few bits, so that packing them (exact/packed_ints.h) makes them
  // smaller.
  bool is_small(size_t bucket) const {
    return mode_ == Mode::kExact && format(buckets_[bucket]->first).few();
  }

  // Block b of the sum as floats, in `scratch` (which has room for a block) or, with kNative, in
  // place.
  std::span<const float> read(size_t block, std::span<float> scratch) const {
    return read_group(0, block, scratch);
  }
  // The same of one group of this worker.
  std::span<const float> read_group(int group, size_t block, std::span<float> scratch) const;
  // The groups of this worker.
  std::span<const int> own_groups() const { return own_groups_; }
  // The blocks of a bucket: first, and past the last.
  std::pair<size_t, size_t> blocks_of(size_t bucket) const {
    return {buckets_[bucket]->first, buckets_[bucket]->last};
  }
  // The exponent byte of these values as they would be rounded for this block.
  uint8_t exponent_of(size_t block, std::span<const float> values) const;

 private:
  enum class State : uint8_t { kOpen, kComplete, kAbandoned };
  struct Bucket {
    size_t first;  // blocks
    size_t last;   // past the end
    std::mutex mutex;
    size_t missing = 0;  // blocks of lanes still to be added; guarded by mutex
    std::atomic<State> state{State::kOpen};
  };
  // A lane whose gradient in fixed point is hashed: the sum of the hashes of its blocks, as threads
  // may add them in any order.
  struct Watched {
    int lane = -1;
    std::atomic<uint64_t> hash{0};
  };
  static void note(Watched& watched, size_t block, uint8_t exponent, std::span<const int32_t> q);
  // A block, and room for it.
  using Values = std::array<float, exact::kBlockSize>;
  // The values as they are rounded: rotated in `room`, or just as they are.
  std::span<const float> prepared(size_t block, std::span<const float> values, Values& room) const;
  bool is_rotated(size_t block) const { return rotation_ && block < late_block_; }
  exact::Stochastic rounding_of(int lane, size_t block) const;
  // What the lane adds to the block; `values` are prepared.
  uint8_t to_fixed(int lane, size_t block, std::span<const float> values, int32_t* q) const;
  void hash_blocks(int lane, size_t first, size_t last, const float* gradient);
  // Blocks [first, last), whose values begin at `gradient`.
  void add_blocks(int lane, size_t tensor, size_t first, size_t last, const float* gradient);
  void add_block(int lane, size_t tensor, size_t block, const float* gradient);
  uint8_t add_exact(int lane, size_t block, std::span<const float> values, bool first,
                    int32_t* sum);
  void add_buffer();
  static void settle(Bucket& bucket, State state);
  // Where a bucket's sums are in the buffer.
  std::pair<size_t, size_t> extent(size_t bucket) const;
  // In the buffer of a group of this worker.
  size_t place_of(int group) const { return place_of_[static_cast<size_t>(group)]; }
  int32_t* ints(size_t place, size_t at) const {
    return reinterpret_cast<int32_t*>(sums_[place].data()) + at;
  }
  float* floats(size_t at) const { return reinterpret_cast<float*>(sums_[0].data()) + at; }

  const exact::BlockLayout& layout_;
  const int lanes_;
  const size_t late_block_;
  Rounding rounding_;
  std::optional<exact::Rotation> rotation_;  // of the step
  int64_t step_ = 0;
  Mode mode_ = Mode::kExact;
  std::span<const uint8_t> exponents_;
  // Laid out like the weights: int32 with kExact, float with kNative.
  // One for each group of this worker. Mutable: a reader of sums gets its blocks in place.
  mutable std::vector<Buffer> sums_;
  Memory& memory_;
  int groups_ = 1;
  std::vector<int> own_groups_ = {0};
  std::vector<size_t> place_of_ = {0};  // by group: which buffer
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<size_t> order_;
  std::vector<uint32_t> bucket_of_;  // by block

  Watched own_;
  Watched other_;

  // By block, guarded by the bucket's mutex.
  uint32_t round_ = 0;
  // By buffer and block: the round in which it was last added to.
  std::vector<std::vector<uint32_t>> added_in_;
  std::vector<uint8_t> seen_;
  // By lane: the first tensor that is not finite, -1: all are. Atomic for those threads that add
  // parts of one tensor together.
  std::vector<std::atomic<int64_t>> not_finite_;
};

}  // namespace muster::train
