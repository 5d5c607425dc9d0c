#include "muster/exact/block_layout.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"

namespace muster::exact {
namespace {

TEST(BlockLayout, CutsTensorsIntoBlocksThatNeverCross) {
  const std::vector<size_t> sizes = {4096, 1, 0, 10000, 16};
  const BlockLayout layout(sizes);
  EXPECT_EQ(layout.tensors(), 5u);
  const std::vector<Block> expected = {{0, 0, 4096},           {1, 4096, 1},
                                       {3, 4112, 4096},        {3, 4112 + 4096, 4096},
                                       {3, 4112 + 8192, 1808}, {4, 4112 + 10000, 16}};
  EXPECT_EQ(std::vector<Block>(layout.blocks().begin(), layout.blocks().end()), expected);
  EXPECT_EQ(layout.elements(), 4112u + 10000 + 16);
  EXPECT_EQ(layout.first_block(2), 2u);  // the empty tensor: from 2 to 2
  EXPECT_EQ(layout.first_block(3), 2u);
  EXPECT_EQ(layout.first_block(5), 6u);
}

TEST(BlockLayout, OfNothing) {
  const BlockLayout layout(std::span<const size_t>{});
  EXPECT_EQ(layout.tensors(), 0u);
  EXPECT_EQ(layout.elements(), 0u);
  EXPECT_TRUE(layout.blocks().empty());
  EXPECT_EQ(layout.first_block(0), 0u);
}

TEST(BlockLayout, FrozenTensorsStandBehindTheOthersWithoutBlocks) {
  const std::vector<size_t> sizes = {5000, 4096, 3, 7};
  const BlockLayout layout(sizes, {true, false, true, false});
  const std::vector<Block> expected = {{1, 0, 4096}, {3, 4096, 7}};
  EXPECT_EQ(std::vector<Block>(layout.blocks().begin(), layout.blocks().end()), expected);
  EXPECT_EQ(layout.block_elements(), 4096u + 16);
  EXPECT_EQ(layout.tensor_begin(0), 4096u + 16);
  EXPECT_EQ(layout.tensor_begin(2), 4096u + 16 + 5008);
  EXPECT_EQ(layout.elements(), 4096u + 16 + 5008 + 16);
  for (const size_t frozen : {0, 2}) {
    EXPECT_EQ(layout.first_block(frozen), layout.first_block(frozen + 1));
    EXPECT_EQ(layout.tensor_size(frozen), sizes[frozen]);
  }
}

TEST(BlockLayout, CoversEveryElementOnce) {
  RandomStream random(1, Purpose::kUser);
  for (int round = 0; round < 50; ++round) {
    std::vector<size_t> sizes(1 + random.below(20));
    for (size_t& size : sizes) size = random.below(3 * kBlockSize);
    const BlockLayout layout(sizes);
    ASSERT_EQ(layout.elements() % kAlign, 0u);
    std::vector<int> seen(layout.elements(), 0);
    for (const Block& block : layout.blocks()) {
      ASSERT_GE(block.size, 1u);
      ASSERT_LE(block.size, kBlockSize);
      ASSERT_EQ(block.begin % kAlign, 0u);
      for (int& count : part(std::span<int>(seen), block)) ++count;
    }
    for (size_t t = 0; t < sizes.size(); ++t) {
      ASSERT_EQ(layout.tensor_size(t), sizes[t]);
      const size_t begin = layout.tensor_begin(t);
      size_t in_blocks = 0;
      for (size_t b = layout.first_block(t); b < layout.first_block(t + 1); ++b) {
        ASSERT_EQ(layout.blocks()[b].tensor, t);
        ASSERT_EQ(layout.blocks()[b].begin, begin + in_blocks);
        in_blocks += layout.blocks()[b].size;
      }
      ASSERT_EQ(in_blocks, sizes[t]);
      for (size_t i = 0; i < sizes[t]; ++i) ASSERT_EQ(seen[begin + i], 1);
    }
    ASSERT_EQ(std::accumulate(seen.begin(), seen.end(), size_t{0}),
              std::accumulate(sizes.begin(), sizes.end(), size_t{0}));  // padding is in no block
  }
}

}  // namespace
}  // namespace muster::exact
