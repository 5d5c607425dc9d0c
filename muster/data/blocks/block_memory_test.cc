#include "muster/data/blocks/block_memory.h"

#include <cstring>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::data {
namespace {

constexpr size_t kPlenty = size_t{64} << 20;

void fill(BlockBytes& bytes, int value) {
  std::memset(bytes.span().data(), value, bytes.span().size());
}

TEST(BlockMemoryTest, ABlockOfAboutTheSameLengthTakesThePagesOver) {
  const auto memory = BlockMemory::make(kPlenty);
  const std::byte* place = nullptr;
  {
    auto bytes = memory->take(1'000'000);
    EXPECT_EQ(bytes.span().size(), 1'000'000U);
    fill(bytes, 1);
    place = bytes.span().data();
  }
  auto longer = memory->take(2'000'000);
  EXPECT_NE(longer.span().data(), place);
  auto shorter = memory->take(500'000);
  EXPECT_NE(shorter.span().data(), place) << "half of it would be nobody's, and resident";
  auto same = memory->take(990'000);
  EXPECT_EQ(same.span().data(), place);
  EXPECT_EQ(same.span().size(), 990'000U);
  fill(longer, 2);
  fill(shorter, 3);
  EXPECT_EQ(same.span()[989'999], std::byte{1});
}

TEST(BlockMemoryTest, FewPiecesAreKept) {
  const auto memory = BlockMemory::make(kPlenty);
  std::set<const std::byte*> places;
  {
    std::vector<BlockBytes> blocks;
    for (size_t i = 0; i < 3 * BlockMemory::kMostFree; ++i) {
      places.insert(blocks.emplace_back(memory->take(1 << 20)).span().data());
    }
  }
  // The pages of all others are gone: of a new mapping nobody knows what is there, but it is zero.
  std::vector<BlockBytes> again;
  size_t fresh = 0;
  for (size_t i = 0; i < 3 * BlockMemory::kMostFree; ++i) {
    auto& bytes = again.emplace_back(memory->take(1 << 20));
    fresh += bytes.span()[0] == std::byte{0} ? 1 : 0;
    fill(bytes, 7);
  }
  EXPECT_EQ(fresh, 3 * BlockMemory::kMostFree) << "nothing was written to the first ones";
  again.clear();
  fresh = 0;
  for (size_t i = 0; i < 3 * BlockMemory::kMostFree; ++i) {
    fresh += again.emplace_back(memory->take(1 << 20)).span()[0] == std::byte{0} ? 1 : 0;
  }
  EXPECT_EQ(fresh, 2 * BlockMemory::kMostFree);
}

// Of a new mapping the first byte is 0.
TEST(BlockMemoryTest, FreePiecesHoldFewBytes) {
  const auto memory = BlockMemory::make(5 << 20);
  const auto kept = [&](size_t size) {
    {
      auto bytes = memory->take(size);
      fill(bytes, 7);
    }
    return memory->take(size).span()[0] != std::byte{0};
  };
  EXPECT_TRUE(kept(5 << 20));
  EXPECT_FALSE(kept(6 << 20));
  EXPECT_TRUE(kept(3 << 20)) << "in the place of that of 5 MiB";
  EXPECT_TRUE(kept(2 << 20));
  auto both = std::pair(memory->take(3 << 20), memory->take(2 << 20));
  EXPECT_NE(both.first.span()[0], std::byte{0});
  EXPECT_NE(both.second.span()[0], std::byte{0});
}

TEST(BlockMemoryTest, BytesMayOutliveWhoeverHadTheMemory) {
  auto memory = BlockMemory::make(kPlenty);
  auto bytes = memory->take(5000);
  auto moved = std::move(bytes);
  memory.reset();
  fill(moved, 1);
  EXPECT_EQ(moved.span()[4999], std::byte{1});
}

TEST(BlockMemoryTest, SmallBlocksAreOnTheHeap) {
  const auto memory = BlockMemory::make(kPlenty);
  std::vector<BlockBytes> blocks;
  for (size_t size : {1UL, 100UL, 4096UL, BlockMemory::kLeastOfPages - 1}) {
    fill(blocks.emplace_back(memory->take(size)), 1);
    EXPECT_EQ(blocks.back().span().size(), size);
  }
}

TEST(BlockMemoryTest, OfNothingThereIsNothing) {
  const auto memory = BlockMemory::make(kPlenty);
  EXPECT_TRUE(memory->take(0).span().empty());
}

TEST(BlockMemoryTest, NoTwoBlocksHaveTheSameBytes) {
  const auto memory = BlockMemory::make(kPlenty);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        auto bytes = memory->take(400'000 + static_cast<size_t>(i % 7) * 1000);
        fill(bytes, t + 1);
        for (const std::byte b : bytes.span()) ASSERT_EQ(b, static_cast<std::byte>(t + 1));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace muster::data
