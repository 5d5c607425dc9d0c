#include "muster/data/read_ahead.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/file_system.h"
#include "muster/base/thread.h"
#include "muster/data/batch.h"
#include "muster/data/blocks/block_dataset.h"
#include "muster/data/blocks/blocks_testing.h"
#include "muster/data/data_testing.h"

namespace muster::data {
namespace {

constexpr uint32_t kInBlock = 10;

// Forty blocks of ten samples.
class ReadAheadTest : public ::testing::Test {
 protected:
  void open(uint64_t memory, int threads) {
    auto index = testing::make_index(std::vector<uint32_t>(40, kInBlock));
    store_ = std::make_shared<testing::FakeStore>(testing::NumbersFormat::write(index));
    StreamOptions options;
    options.fetch = {.memory = memory, .threads = threads};
    auto opened = BlockDataset::open(std::make_shared<const BlockIndex>(std::move(index)),
                                     std::make_unique<testing::NumbersFormat>(400), store_, options,
                                     *files_, {});
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    data_ = *std::move(opened);
  }

  // Reads this batch of `size`, and checks it.
  void read(uint64_t first, uint64_t count) {
    Batch batch;
    const auto status = read_range(*data_, first, count, batch);
    ASSERT_TRUE(status.ok()) << status.error().message();
    const auto* targets = reinterpret_cast<const int64_t*>(batch.targets.data());
    for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(targets[i], static_cast<int64_t>(first + i));
  }

  const std::unique_ptr<FileSystem> files_ = posix_file_system();
  std::shared_ptr<testing::FakeStore> store_;
  std::unique_ptr<BlockDataset> data_;
};

TEST_F(ReadAheadTest, BlocksAreRequestedBeforeTheyAreRead) {
  open(1 << 20, 4);
  // A request is answered only while three others are under way: one after the other would wait for
  // ever, or until the time is over.
  std::mutex mutex;
  std::condition_variable more;
  int requests = 0;
  bool all = true;
  store_->set_before([&](const store::Object&, uint64_t) -> Status {
    std::unique_lock lock(mutex);
    const int round = requests++ / 4;
    more.notify_all();
    all = more.wait_for(lock, std::chrono::seconds(20), [&] {
      return requests >= round * 4 + 4;
    }) && all;
    return {};
  });
  const ReadAhead ahead(*data_, kInBlock, uint64_t{9} * kInBlock, kInBlock, 1);  // eight blocks
  for (uint64_t first = kInBlock; first < uint64_t{9} * kInBlock; first += kInBlock)
    read(first, kInBlock);
  EXPECT_TRUE(all);
  EXPECT_EQ(requests, 8) << "and none behind the end";
}

TEST_F(ReadAheadTest, WithLittleMemoryItGoesOnAsBlocksAreRead) {
  open(uint64_t{5} * kInBlock * 9, 2);
  ReadAhead ahead(*data_, 0, 400, 4, 2);
  for (uint64_t i = 0; i < 100; ++i) {
    read(i * 4, 4);
    if (i % 2 == 1) {  // the second of two first, as threads may
      ahead.done(i);
      ahead.done(i - 1);
    }
  }
  EXPECT_EQ(data_->fetched()->blocks, 40U) << "each once";
}

TEST_F(ReadAheadTest, WhatIsSkippedIsNotWaitedFor) {
  open(uint64_t{3} * kInBlock * 8, 2);
  ReadAhead ahead(*data_, 0, 400, kInBlock, 1);
  ahead.reached(300);
  for (uint64_t first = 300; first < 400; first += kInBlock) {
    read(first, kInBlock);
    ahead.reached(first + kInBlock);
  }
  EXPECT_LE(data_->fetched()->blocks, 15U) << "the last ten, and some at the front";
}

TEST_F(ReadAheadTest, DataInMemoryIsLeftAlone) {
  const testing::NumberedDataset data(100);
  ReadAhead ahead(data, 0, 100, 10, 1);
  ahead.done(0);
  ahead.reached(50);
}

}  // namespace
}  // namespace muster::data
