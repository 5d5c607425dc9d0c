// What is read instead of blocks that are damaged (data.on_damage: replace).
//
// Every sample of a damaged block becomes one of another block, its substitute: sample i becomes
// sample i modulo c of the substitute, which has c samples. The substitute is drawn by a key of the
// seed and the number of the damaged block; if it is damaged too, it is the next block in the order
// of the data that is not. So what is read follows from the index, the seed and the set of damaged
// blocks alone: not from workers, threads or lanes, nor from the order in which damage was found.
// It does not depend on the pass either, so that the blocks that a lane will read are known ahead
// (schedule.h).
//
// Part of the format of a run: a change here changes what a run with damaged data trains on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "muster/base/result.h"
#include "muster/data/blocks/block_index.h"

namespace muster::data {

// Immutable; safe for concurrent use.
class Replacements {
 public:
  // More blocks than these are never replaced, however many the data has.
  static constexpr uint64_t kMost = 128;
  // How many blocks may be damaged, of so many: a tenth of them, rounded up, but at most kMost, and
  // of a single block none.
  static uint64_t most_of(uint64_t blocks);

  // For these damaged blocks, in any order. Errors: kData if there are more than may be, which
  // names the last of them; kCheckpoint if the data has no such block.
  static Result<std::shared_ptr<const Replacements>> make(const BlockIndex& index, uint64_t seed,
                                                          std::span<const uint64_t> damaged);

  // As given to make().
  std::span<const uint64_t> damaged() const { return damaged_; }
  // The substitute of a damaged block; any other block itself.
  uint32_t instead_of(uint32_t block) const;
  // Replaces those of these samples that are of damaged blocks. Returns how many these are.
  uint64_t apply(std::span<uint64_t> samples) const;

 private:
  struct Entry {
    uint64_t first = 0;  // samples [first, end) of the damaged block
    uint64_t end = 0;
    uint64_t other_first = 0;  // of the substitute
    uint64_t other_count = 0;
    uint32_t block = 0;
    uint32_t other = 0;
  };
  Replacements() = default;

  std::vector<uint64_t> damaged_;
  std::vector<Entry> entries_;  // by block, so by first sample too
};

}  // namespace muster::data
