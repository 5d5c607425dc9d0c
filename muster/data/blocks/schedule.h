// Which blocks a lane will read, and from which step to which: the known future that BlockCache
// fetches by.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "muster/data/blocks/block_index.h"
#include "muster/data/blocks/replacements.h"
#include "muster/data/plan.h"
#include "muster/data/sample_order.h"

namespace muster::data {

// A block that a lane reads in some of the steps from `due` to `last`.
struct BlockUse {
  uint32_t block = 0;
  uint64_t due = 0;
  uint64_t last = 0;
  bool operator==(const BlockUse&) const = default;
};

// Not safe for concurrent use.
class BlockSchedule {
 public:
  virtual ~BlockSchedule() = default;
  // By step due; nothing at the end of the job. Every sample that the lane reads is in a block
  // whose use covers the step. A block may come again, later or while an earlier use lasts.
  virtual std::optional<BlockUse> next() = 0;
};

// For the lane of this plan, from `step` on. For strata it is computed from the tables of the lane,
// without looking at samples, and a use lasts until the last row of the block's piece, give or take
// the rows of one group. For other orders all samples are looked at, and a use is one step. `order`
// and `index` must outlive the schedule. `replacements`: null if no block is replaced.
std::unique_ptr<BlockSchedule> make_schedule(
    const SampleOrder& order, const BlockIndex& index, const BatchPlan& batches, int lane,
    uint64_t step, std::shared_ptr<const Replacements> replacements = nullptr);

}  // namespace muster::data
