// Where the gradients of the lanes meet.
//
// Each lane adds its gradient tensor by tensor, as backward produces it. With Mode::kExact the sum
// is in block fixed point (muster/exact), so it does not depend on which lane came first; with
// kNative it is plain float and does. kDry only looks at magnitudes: the first step of a job uses
// it to find its scales.
//
// The buffer is cut into buckets of whole blocks. A bucket is what one lane locks at a time (and,
// with several workers, what is exchanged at a time); its size has no effect on bits.
//
// Threads: begin() and finish() and all reading belong to one thread, with no add() running. add()
// may run on any number of threads, each with a lane of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "muster/exact/block_layout.h"

namespace muster::train {

class GradientSum {
 public:
  enum class Mode { kExact, kNative, kDry };

  struct NotFinite {
    int lane;
    size_t tensor;  // the first one of that lane, in the order of backward
  };

  struct Outcome {
    bool overflow = false;  // some lane left the range of some block's scale: redo with seen()
    std::optional<NotFinite> not_finite;  // of the lowest such lane
  };

  // `layout` must outlive this. `lanes` of the whole job.
  GradientSum(const exact::BlockLayout& layout, int lanes, size_t bucket_bytes);

  // Starts a sum. exponents: one per block, from which scales are made; must not change until the
  // next begin().
  void begin(Mode mode, std::span<const uint8_t> exponents);
  void add(int lane, size_t tensor, const float* gradient);
  // A part of it: the elements from `first` on, which must be the beginning of a block; all parts
  // must cover the tensor once. Parts of one lane may be added by several threads.
  void add_part(int lane, size_t tensor, size_t first, std::span<const float> part);
  // Everything has been added. Blocks that nobody added to are zero.
  Outcome finish();

  // The largest exponent byte that any lane had in each block.
  std::span<const uint8_t> seen() const { return seen_; }
  // Block b of the sum as floats, in `scratch` (which has room for a block) or, with kNative, in
  // place.
  std::span<const float> read(size_t block, std::span<float> scratch) const;

 private:
  struct Bucket {
    size_t first;  // blocks
    size_t last;   // past the end
    std::mutex mutex;
  };
  // Blocks [first, last), whose values begin at `gradient`.
  void add_blocks(int lane, size_t tensor, size_t first, size_t last, const float* gradient);
  void add_block(int lane, size_t tensor, size_t block, const float* gradient);
  int32_t* ints(size_t at) const { return static_cast<int32_t*>(sums_.get()) + at; }
  float* floats(size_t at) const { return static_cast<float*>(sums_.get()) + at; }

  const exact::BlockLayout& layout_;
  const int lanes_;
  Mode mode_ = Mode::kExact;
  std::span<const uint8_t> exponents_;
  // Laid out like the weights: int32 with kExact, float with kNative.
  std::unique_ptr<void, void (*)(void*)> sums_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<uint32_t> bucket_of_;  // by block

  // By block, guarded by the bucket's mutex.
  uint32_t round_ = 0;
  std::vector<uint32_t> added_in_;  // the round in which it was last added to
  std::vector<uint8_t> seen_;
  std::vector<uint8_t> overflow_;
  // By lane: the first tensor that is not finite, -1: all are. Atomic for those threads that add
  // parts of one tensor together.
  std::vector<std::atomic<int64_t>> not_finite_;
};

}  // namespace muster::train
