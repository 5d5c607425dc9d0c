#include "muster/data/blocks/strata.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"
#include "muster/data/blocks/blocks_testing.h"

namespace muster::data {
namespace {

using testing::make_index;

std::shared_ptr<const BlockIndex> index_of(const std::vector<uint32_t>& counts) {
  return std::make_shared<const BlockIndex>(make_index(counts));
}

std::vector<uint32_t> equal_blocks(size_t blocks, uint32_t count) {
  return std::vector<uint32_t>(blocks, count);
}

std::vector<uint64_t> stream(const SampleOrder& order, uint64_t first, uint64_t count) {
  std::vector<uint64_t> result(count);
  order.samples({first, count}, result);
  return result;
}

void expect_exactly_once(const Strata& order, uint64_t passes) {
  const uint64_t n = order.size();
  for (uint64_t pass = 0; pass < passes; ++pass) {
    std::vector<bool> seen(n);
    const auto samples = stream(order, pass * n, n);
    for (uint64_t p = 0; p < n; ++p) {
      ASSERT_LT(samples[p], n);
      ASSERT_FALSE(seen[samples[p]]) << "pass " << pass << ": sample " << samples[p] << " twice";
      seen[samples[p]] = true;
      ASSERT_EQ(order.position_of(pass, samples[p]), pass * n + p);
    }
  }
}

TEST(StrataTest, EachPassHasEachSampleOnceForRandomOddSizes) {
  for (uint64_t trial = 0; trial < 600; ++trial) {
    RandomStream random(trial, Purpose::kUser);
    // Few or many blocks, alike or not, more or fewer samples than lanes, batches that divide
    // nothing and that are longer than the data.
    std::vector<uint32_t> counts(1 + random.below(trial % 3 == 0 ? 3 : 60));
    const uint64_t most = 1 + random.below(trial % 2 == 0 ? 5 : 40);
    for (auto& count : counts) count = static_cast<uint32_t>(1 + random.below(most));
    const uint64_t lanes = 1 + random.below(20);
    const uint64_t batch = 1 + random.below(trial % 5 == 0 ? 2000 : 100);
    const StrataShape shape{.tracks = 1 + random.below(9),
                            .rows = 1 + random.below(7),
                            .homes = random.below(2) == 0 ? Homes::kMoving : Homes::kFixed};
    SCOPED_TRACE(fmt::format("trial {}: {} blocks, {} lanes, batch {}, w {}, R {}", trial,
                             counts.size(), lanes, batch, shape.tracks, shape.rows));
    expect_exactly_once(Strata(index_of(counts), trial, batch, lanes, shape), 3);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(StrataTest, TheSmallestData) {
  for (const uint64_t lanes : {1U, 2U, 7U}) {
    for (const uint64_t batch : {1U, 3U, 8U}) {
      expect_exactly_once(Strata(index_of({1}), 1, batch, lanes, {.tracks = 2, .rows = 1}), 5);
      expect_exactly_once(Strata(index_of({1, 1}), 1, batch, lanes, {.tracks = 4, .rows = 3}), 5);
      expect_exactly_once(Strata(index_of({17}), 1, batch, lanes, {.tracks = 2, .rows = 2}), 5);
    }
  }
}

TEST(StrataTest, DoesNotDependOnWhichPositionsWereAskedForBefore) {
  const auto index = index_of(equal_blocks(50, 13));
  const StrataShape shape{.tracks = 3, .rows = 2};
  const Strata all(index, 9, 24, 4, shape);
  const auto expected = stream(all, 0, 2000);
  for (const uint64_t lane : {2U, 0U, 3U}) {  // one lane alone, the last pass first
    const Strata order(index, 9, 24, 4, shape);
    for (uint64_t step = 2000 / 24; step-- > 0;) {
      const Slice slice = lane_slice({.batch = 24, .lanes = 4}, step, lane);
      EXPECT_EQ(stream(order, slice.first, slice.count),
                std::vector<uint64_t>(
                    expected.begin() + static_cast<std::ptrdiff_t>(slice.first),
                    expected.begin() + static_cast<std::ptrdiff_t>(slice.first + slice.count)));
    }
  }
  const Strata single(index, 9, 24, 4, shape);
  for (const uint64_t p : {1999U, 0U, 650U, 649U, 1300U}) EXPECT_EQ(single.at(p), expected[p]);
}

TEST(StrataTest, PassesSeedsAndLanesAreUnrelated) {
  const auto index = index_of(equal_blocks(100, 20));
  const StrataShape shape{.tracks = 4, .rows = 2};
  const Strata order(index, 1, 32, 4, shape);
  const auto agree = [](const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
    int same = 0;
    for (size_t i = 0; i < a.size(); ++i) same += a[i] == b[i] ? 1 : 0;
    return same;
  };
  const auto first = stream(order, 0, 2000);
  // By chance one sample in 2,000 is at the same position.
  EXPECT_LT(agree(first, stream(order, 2000, 2000)), 15);
  EXPECT_LT(agree(first, stream(Strata(index, 2, 32, 4, shape), 0, 2000)), 15);
  EXPECT_LT(agree(first, stream(Strata(index, 1, 32, 5, shape), 0, 2000)), 15);
}

// What the order is for: a lane reads few blocks at a time, each of them once.
TEST(StrataTest, ALaneHasFewBlocksOpenAtATime) {
  constexpr uint64_t kLanes = 4;
  constexpr uint64_t kBatch = 32;
  const auto index = index_of(equal_blocks(1000, 64));
  const StrataShape shape = strata_shape(*index, kLanes, {.window = uint64_t{8} * 64 * 8});
  EXPECT_EQ(shape, (StrataShape{.tracks = 8, .rows = 8, .homes = Homes::kMoving}));
  const Strata order(index, 3, kBatch, kLanes, shape);
  uint64_t reads = 0;
  for (uint64_t lane = 0; lane < kLanes; ++lane) {
    // Of each block of the lane: the first and the last step that uses it.
    std::vector<std::pair<uint64_t, uint64_t>> used(index->blocks.size(), {~uint64_t{0}, 0});
    const uint64_t steps = index->samples() / kBatch;
    for (uint64_t step = 0; step < steps; ++step) {
      const Slice slice = lane_slice({.batch = kBatch, .lanes = kLanes}, step, lane);
      for (const uint64_t sample : stream(order, slice.first, slice.count)) {
        auto& [first, last] = used[index->block_of(sample)];
        first = std::min(first, step);
        last = std::max(last, step);
      }
    }
    std::vector<int> open(steps + 1);
    for (const auto& [first, last] : used) {
      if (first > last) continue;
      ++reads;
      for (uint64_t step = first; step <= last; ++step) ++open[step];
    }
    EXPECT_LE(std::ranges::max(open), 8 + 4);
  }
  // Borders cut at most w * L blocks (and the rotation one).
  EXPECT_LE(reads, index->blocks.size() + shape.tracks * kLanes + 1);
}

TEST(StrataTest, ALaneDrawsFromAllPartsOfTheData) {
  const auto index = index_of(equal_blocks(512, 32));
  const uint64_t n = index->samples();
  const Strata order(index, 5, 64, 4, {.tracks = 8, .rows = 4});
  for (uint64_t lane = 0; lane < 4; ++lane) {
    for (const uint64_t step : {0U, 57U, 200U}) {
      std::set<uint64_t> eighths;
      for (uint64_t s = step; s < step + 8; ++s) {
        const Slice slice = lane_slice({.batch = 64, .lanes = 4}, s, lane);
        for (const auto sample : stream(order, slice.first, slice.count)) {
          eighths.insert(sample * 8 / n);
        }
      }
      EXPECT_GE(eighths.size(), 7U);
    }
  }
}

TEST(StrataTest, FixedHomesKeepTheBlocksOfALane) {
  const auto index = index_of(equal_blocks(400, 16));
  const auto common = [&](Homes homes) {
    const Strata order(index, 5, 64, 4, {.tracks = 4, .rows = 2, .homes = homes});
    uint64_t same = 0;
    for (uint64_t lane = 0; lane < 4; ++lane) {
      std::array<std::set<uint32_t>, 2> blocks;
      for (const uint64_t pass : {0U, 1U}) {
        for (const auto& piece : order.table(pass, lane)->pieces) blocks[pass].insert(piece.block);
      }
      for (const auto block : blocks[0]) same += blocks[1].contains(block) ? 1 : 0;
    }
    return same;
  };
  EXPECT_GE(common(Homes::kFixed), 400U);
  EXPECT_LE(common(Homes::kMoving), 200U);
  // The order within them still differs from pass to pass.
  const Strata order(index, 5, 64, 4, {.tracks = 4, .rows = 2, .homes = Homes::kFixed});
  EXPECT_NE(stream(order, 0, 64), stream(order, index->samples(), 64));
}

TEST(StrataTest, TheShapeFollowsFromJobAndIndex) {
  const auto index = make_index(equal_blocks(4096, 800), 100);  // 80 kB each
  EXPECT_EQ(strata_shape(index, 8, {.window = uint64_t{16} * 80000}).tracks, 16U);
  EXPECT_EQ(strata_shape(index, 8, {.window = uint64_t{16} * 80000}).rows, 100U);
  EXPECT_EQ(strata_shape(index, 8, {}).tracks, 64U) << "at most K/(8L)";
  EXPECT_EQ(strata_shape(index, 4096, {}).tracks, 2U) << "at least 2";
  EXPECT_EQ(strata_shape(index, 8, {.window = 1}).tracks, 2U);
  EXPECT_EQ(strata_shape(make_index({3}), 8, {}), (StrataShape{.tracks = 2, .rows = 1}));
}

// After a step that was short, batches begin elsewhere in the stream: a position still has its
// sample, and lanes only read more blocks.
TEST(StrataTest, LanesMayTakeOtherPositions) {
  const auto index = index_of(equal_blocks(30, 10));
  const Strata order(index, 4, 16, 4, {.tracks = 2, .rows = 2});
  std::vector<int> used(300);
  const BatchPlan before{.batch = 16, .lanes = 4, .total = 150};
  const BatchPlan after{
      .batch = 16, .lanes = 4, .total = 300, .first_step = before.steps(), .first_sample = 150};
  for (const auto& plan : {before, after}) {
    for (uint64_t step = plan.first_step; step < plan.steps(); ++step) {
      for (uint64_t lane = 0; lane < 4; ++lane) {
        const Slice slice = lane_slice(plan, step, lane);
        for (const auto sample : stream(order, slice.first, slice.count)) ++used[sample];
      }
    }
  }
  EXPECT_TRUE(std::ranges::all_of(used, [](int count) { return count == 1; }));
}

TEST(StrataTest, KeepsTheTablesOfLanesThatAreInUseOnly) {
  const Strata order(index_of(equal_blocks(40, 10)), 1, 8, 4, {.tracks = 2, .rows = 2});
  const std::weak_ptr<const Strata::LaneTable> moved = order.table(0, 3);
  const std::weak_ptr<const Strata::LaneTable> own = order.table(0, 0);
  for (int i = 0; i < 1000; ++i) {
    (void)order.table(0, 0);
    (void)order.table(0, 1);
  }
  EXPECT_FALSE(moved.expired());
  (void)order.table(1, 1);
  EXPECT_TRUE(moved.expired()) << "when a table is made";
  EXPECT_EQ(order.table(0, 0), own.lock());
  EXPECT_EQ(order.table(0, 3)->lane, 3U) << "made again";
}

TEST(StrataTest, NeverChanges) {
  // Runs of earlier versions must repeat: these values are part of the format.
  std::vector<uint32_t> counts;
  for (uint32_t i = 0; i < 500; ++i) counts.push_back(70 + i % 7);
  const auto index = index_of(counts);
  const auto golden = [&](Homes homes) {
    const Strata order(index, 7, 48, 6, {.tracks = 5, .rows = 20, .homes = homes});
    std::vector<uint64_t> some;
    const uint64_t n = order.size();
    for (const uint64_t p : {uint64_t{0}, uint64_t{1}, uint64_t{9}, n - 1, n, 3 * n + 5, 100 * n}) {
      some.push_back(order.at(p));
    }
    return some;
  };
  EXPECT_EQ(golden(Homes::kMoving),
            (std::vector<uint64_t>{16583, 4633, 11208, 11722, 28759, 11651, 5633}));
  EXPECT_EQ(golden(Homes::kFixed),
            (std::vector<uint64_t>{31324, 20603, 23542, 24056, 977, 10282, 23573}));
}

}  // namespace
}  // namespace muster::data
