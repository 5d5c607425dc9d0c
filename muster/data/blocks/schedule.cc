#include "muster/data/blocks/schedule.h"

#include <algorithm>
#include <cstddef>
#include <queue>
#include <utility>
#include <vector>

#include "muster/base/check.h"
#include "muster/data/blocks/strata.h"

namespace muster::data {
namespace {

// Step by step, sample by sample.
class SampleSchedule final : public BlockSchedule {
 public:
  SampleSchedule(const SampleOrder& order, const BlockIndex& index, const BatchPlan& batches,
                 int lane, uint64_t step)
      : order_(order),
        index_(index),
        batches_(batches),
        lane_(static_cast<uint64_t>(lane)),
        step_(step) {}

  std::optional<BlockUse> next() override {
    while (blocks_.empty()) {
      if (step_ >= batches_.steps()) return std::nullopt;
      const Slice slice = lane_slice(batches_, step_, lane_);
      samples_.resize(slice.count);
      order_.samples(slice, samples_);
      for (const uint64_t sample : samples_) {
        blocks_.push_back(static_cast<uint32_t>(index_.block_of(sample)));
      }
      std::ranges::sort(blocks_);
      const auto repeated = std::ranges::unique(blocks_);
      blocks_.erase(repeated.begin(), repeated.end());
      ++step_;
    }
    const uint32_t block = blocks_.back();
    blocks_.pop_back();
    return BlockUse{block, step_ - 1, step_ - 1};
  }

 private:
  const SampleOrder& order_;
  const BlockIndex& index_;
  const BatchPlan batches_;
  const uint64_t lane_;
  uint64_t step_;                 // the next to look at
  std::vector<uint32_t> blocks_;  // of the step before it, still to come
  std::vector<uint64_t> samples_;
};

// Track by track: each goes from piece to piece, and from pass to pass.
class StrataSchedule final : public BlockSchedule {
 public:
  StrataSchedule(const Strata& strata, const BatchPlan& batches, int lane, uint64_t step)
      : strata_(strata), batches_(batches) {
    const Slice slice = lane_slice(batches, step, static_cast<uint64_t>(lane));
    if (slice.count == 0) return;
    // Usually the lane itself. Where batches are shifted against the order's, two or three.
    uint64_t before = strata.lanes();
    for (uint64_t p = slice.first; p < slice.first + slice.count; ++p) {
      const uint64_t owner = strata.lane_of(p);
      if (owner != before) begin(owner, slice.first);
      before = owner;
    }
  }

  std::optional<BlockUse> next() override {
    while (!cursors_.empty()) {
      Cursor cursor = cursors_.top();
      cursors_.pop();
      if (cursor.use.due >= batches_.steps()) continue;  // and so are all that come after it
      const bool real = cursor.piece < cursor.table->track(cursor.track).size();
      const BlockUse use = cursor.use;
      if (real) {
        ++cursor.piece;
      } else {
        cursor.table = strata_.table(cursor.table->pass + 1, cursor.table->lane);
        cursor.piece = 0;
        cursor.from = 0;
      }
      push(std::move(cursor));
      if (real) return use;
    }
    return std::nullopt;
  }

 private:
  struct Cursor {
    std::shared_ptr<const Strata::LaneTable> table;
    uint64_t track = 0;
    size_t piece = 0;   // past the last: on to the next pass
    uint64_t from = 0;  // samples of the lane in this pass before this one do not count
    BlockUse use;

    bool operator<(const Cursor& other) const {  // the top of the queue: the smallest
      return std::pair(use.due, use.block) > std::pair(other.use.due, other.use.block);
    }
  };

  uint64_t group_size() const { return strata_.shape().rows * strata_.shape().tracks; }

  uint64_t step_of(const Strata::LaneTable& table, uint64_t i) const {
    const uint64_t p = strata_.position_of_lane_sample(table.lane, table.begin + i);
    return batches_.first_step +
           (p < batches_.first_sample ? 0 : (p - batches_.first_sample) / batches_.batch);
  }

  void begin(uint64_t lane, uint64_t position) {
    const auto table = strata_.table(position / strata_.size(), lane);
    const uint64_t from = strata_.lane_samples_before(lane, position) - table->begin;
    const uint64_t row = from / group_size() * strata_.shape().rows;
    for (uint64_t track = 0; track < strata_.shape().tracks; ++track) {
      const auto pieces = table->track(track);
      const auto first = std::ranges::upper_bound(pieces, row, {}, &Strata::Piece::end_row);
      push({.table = table,
            .track = track,
            .piece = static_cast<size_t>(first - pieces.begin()),
            .from = from,
            .use = {}});
    }
  }

  // With its use: from the group of the piece's first row to the group of its last one.
  void push(Cursor cursor) {
    const auto& table = *cursor.table;
    const auto pieces = table.track(cursor.track);
    const uint64_t rows = strata_.shape().rows;
    const auto end_of = [&](const Strata::Piece& piece) {
      return std::min(table.quota, ((piece.end_row - 1) / rows + 1) * group_size());
    };
    while (cursor.piece < pieces.size() && end_of(pieces[cursor.piece]) <= cursor.from) {
      ++cursor.piece;
    }
    if (cursor.piece < pieces.size()) {
      const uint64_t first_row = cursor.piece == 0 ? 0 : pieces[cursor.piece - 1].end_row;
      const uint64_t first = first_row / rows * group_size();
      cursor.use = {.block = pieces[cursor.piece].block,
                    .due = step_of(table, std::max(first, cursor.from)),
                    .last = step_of(table, end_of(pieces[cursor.piece]) - 1)};
    } else {
      // When the next pass begins.
      cursor.use = {.block = 0, .due = step_of(table, table.quota), .last = 0};
    }
    cursors_.push(std::move(cursor));
  }

  const Strata& strata_;
  const BatchPlan batches_;
  std::priority_queue<Cursor> cursors_;
};

// The same with what is read instead of damaged blocks.
class ReplacedSchedule final : public BlockSchedule {
 public:
  ReplacedSchedule(std::unique_ptr<BlockSchedule> inner,
                   std::shared_ptr<const Replacements> replacements)
      : inner_(std::move(inner)), replacements_(std::move(replacements)) {}

  std::optional<BlockUse> next() override {
    auto use = inner_->next();
    if (use) use->block = replacements_->instead_of(use->block);
    return use;
  }

 private:
  const std::unique_ptr<BlockSchedule> inner_;
  const std::shared_ptr<const Replacements> replacements_;
};

}  // namespace

std::unique_ptr<BlockSchedule> make_schedule(const SampleOrder& order, const BlockIndex& index,
                                             const BatchPlan& batches, int lane, uint64_t step,
                                             std::shared_ptr<const Replacements> replacements) {
  if (replacements != nullptr) {
    return std::make_unique<ReplacedSchedule>(make_schedule(order, index, batches, lane, step),
                                              std::move(replacements));
  }
  if (const auto* strata = dynamic_cast<const Strata*>(&order); strata != nullptr) {
    MUSTER_CHECK(strata->batch() == batches.batch && strata->lanes() == batches.lanes,
                 "the order is of this job's batches");
    return std::make_unique<StrataSchedule>(*strata, batches, lane, step);
  }
  return std::make_unique<SampleSchedule>(order, index, batches, lane, step);
}

}  // namespace muster::data
