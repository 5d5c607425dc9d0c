// The order `strata`: a shuffle for data that is read by blocks.
//
// The order `full` (order.h) draws each sample from anywhere, which is of no use where a block of
// thousands has to be read to get one. Here each lane reads w tracks at a time. A track walks
// through a contiguous stretch of the data, block by block in a random order, and through each
// block in a random order; the next samples of a lane are drawn from all its tracks. The stretches
// of a lane are spread over the data, one from each w-th part of it, so that data that is sorted is
// mixed too.
//
// Exactly (L lanes, batches of B, n samples; each key also has the seed and the pass):
// 1. A position of the stream belongs to a pass and a lane: lane l has the positions from l*B/L to
//    (l+1)*B/L of each B. It is the i-th that the lane has in this pass, of q, its quota.
// 2. Groups of R*w such numbers (the last may be shorter) are permuted, by key (lane, group):
//    i -> i'. Row i'/w, track i' mod w. A track has q/w rows, and one more if it is among the first
//    q mod w.
// 3. The data, rotated by an offset that is random in each pass, is cut into w*L stretches: w times
//    the lanes in an order keyed by (track), each stretch as long as that lane's track.
// 4. Block borders cut a stretch into pieces: whole blocks, and a part of one at both ends. The
//    pieces are in an order keyed by (lane, track); inside a piece the samples are permuted by key
//    (first sample). The row says which piece, and which place in it.
// Each step can be undone, so each pass has each sample exactly once. There is no state, and any
// position costs the same. It depends on lanes, not on workers or threads.
//
// A job that was resumed after a short step (plan.h) has its batches shifted against 1.: a lane
// then takes positions that belong to two neighbouring lanes here. It reads more blocks, and every
// sample is still used once.
//
// Part of the format of a run: a change here changes what every seed trains on.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/data/blocks/block_index.h"
#include "muster/data/plan.h"
#include "muster/data/sample_order.h"

namespace muster::data {

// Whether the stretches of a lane move from pass to pass. Fixed ones let the disk cache of a worker
// serve its lanes in every pass, but a lane then sees only its own part of the data. (They still
// move a little where n is no multiple of B: quotas differ by a few samples from pass to pass.)
enum class Homes : uint8_t { kMoving, kFixed };

// What the job says.
struct StrataOptions {
  uint64_t window = uint64_t{64} << 20;  // bytes of blocks that a lane has open at a time, about
  Homes homes = Homes::kMoving;
  bool operator==(const StrataOptions&) const = default;
};

struct StrataShape {
  uint64_t tracks = 2;  // w
  uint64_t rows = 1;    // R
  Homes homes = Homes::kMoving;
  bool operator==(const StrataShape&) const = default;
};

// From job and index alone, as bits depend on it. As many tracks as the window holds blocks of mean
// length, but at most K/(8L), so that blocks that are cut by borders add at most an eighth to what
// is read, and at least 2. Rows: an eighth of a block, so that about w/8 more blocks are open while
// a track goes from one to the next.
StrataShape strata_shape(const BlockIndex& index, uint64_t lanes, const StrataOptions& options);

// Safe for concurrent use. Tables of the lanes and passes that are asked for are made when first
// needed and kept for two passes, as long as the lane is in use: 24 bytes for each block of it.
class Strata final : public SampleOrder {
 public:
  // The batch size and lanes of the job (BatchPlan).
  Strata(std::shared_ptr<const BlockIndex> index, uint64_t seed, uint64_t batch, uint64_t lanes,
         const StrataShape& shape);
  ~Strata() override;

  uint64_t size() const override { return n_; }
  void samples(const Slice& positions, std::span<uint64_t> into) const override;
  uint64_t position_of(uint64_t pass, uint64_t sample) const override;

  const BlockIndex& index() const { return *index_; }
  const StrataShape& shape() const { return shape_; }
  uint64_t lanes() const { return lanes_; }
  uint64_t batch() const { return batch_; }
  // The lane that a position of the stream belongs to.
  uint64_t lane_of(uint64_t position) const {
    return ((position % batch_ + 1) * lanes_ - 1) / batch_;
  }

  // A part of a block, and its place in a track.
  struct Piece {
    uint64_t first = 0;  // sample
    uint64_t end_row =
        0;  // of the track, behind its last sample; it begins where the one before ends
    uint32_t block = 0;
  };
  // What a lane reads in a pass.
  struct LaneTable {
    uint64_t pass = 0;
    uint64_t lane = 0;
    uint64_t begin = 0;              // how many samples the lane had before this pass
    uint64_t quota = 0;              // and has in it
    std::vector<size_t> track_ends;  // in pieces, by track
    std::vector<Piece> pieces;       // track by track, in the order in which they are read

    std::span<const Piece> track(uint64_t j) const {
      const size_t first = j == 0 ? 0 : track_ends[j - 1];
      return std::span(pieces).subspan(first, track_ends[j] - first);
    }
  };
  std::shared_ptr<const LaneTable> table(uint64_t pass, uint64_t lane) const;
  // How many samples of the lane are before this position of the stream.
  uint64_t lane_samples_before(uint64_t lane, uint64_t position) const;
  // The position of the lane's sample number `i` since the beginning of the stream. The lane has
  // positions (batch >= lanes sees to it).
  uint64_t position_of_lane_sample(uint64_t lane, uint64_t i) const;

 private:
  struct PassTable;
  struct Memo;

  uint64_t lane_begin(uint64_t lane) const { return lane * batch_ / lanes_; }
  uint64_t key(uint64_t kind, uint64_t a, uint64_t b, uint64_t c = 0) const;
  std::shared_ptr<const PassTable> pass_table(uint64_t pass) const;
  std::shared_ptr<const PassTable> make_pass_table(uint64_t pass) const;
  std::shared_ptr<const LaneTable> make_table(uint64_t pass, uint64_t lane) const;
  void lane_samples(const LaneTable& table, uint64_t i, std::span<uint64_t> into) const;
  // Of a stretch: its pieces in the order of the data.
  struct Stretch;
  Stretch stretch(const PassTable& pass, uint64_t track, uint64_t lane) const;

  const std::shared_ptr<const BlockIndex> index_;
  const uint64_t seed_;
  const uint64_t n_;
  const uint64_t batch_;
  const uint64_t lanes_;
  const StrataShape shape_;
  const std::unique_ptr<Memo> memo_;
};

}  // namespace muster::data
