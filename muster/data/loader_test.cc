#include "muster/data/loader.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "muster/data/data_testing.h"

namespace muster::data {
namespace {

using testing::NumberedDataset;

std::vector<int> all_lanes(uint64_t lanes) {
  std::vector<int> result;
  for (uint64_t lane = 0; lane < lanes; ++lane) result.push_back(static_cast<int>(lane));
  return result;
}

Augmenter some_augmentation(const Dataset& dataset) {
  return *Augmenter::make({.shift = 1, .flip = true}, dataset.schema());
}

// A batch as values that can be compared.
struct Contents {
  uint64_t step;
  int lane;
  std::vector<uint64_t> samples;
  std::vector<float> inputs;
  std::vector<int64_t> targets;
  bool operator==(const Contents&) const = default;
};

Contents contents(const Batch& batch, const Schema& schema) {
  EXPECT_EQ(batch.samples.size(), batch.count);
  Contents result{.step = batch.step,
                  .lane = batch.lane,
                  .samples = batch.samples,
                  .inputs = {},
                  .targets = {}};
  result.inputs.resize(batch.count * schema.input_elements());
  result.targets.resize(batch.count);
  if (batch.count > 0) {
    std::memcpy(result.inputs.data(), batch.inputs.data(), result.inputs.size() * sizeof(float));
    std::memcpy(result.targets.data(), batch.targets.data(), batch.count * sizeof(int64_t));
  }
  return result;
}

Contents expected(const Dataset& dataset, const LoaderPlan& plan, uint64_t step, int lane) {
  Batch batch;
  EXPECT_TRUE(
      fill_batch(dataset, FullOrder(plan.seed, dataset.size()), plan, step, lane, batch).ok());
  return contents(batch, dataset.schema());
}

TEST(FillBatchTest, TakesTheSamplesThatOrderAndPlanSay) {
  const NumberedDataset dataset(10);
  const LoaderPlan plan{.seed = 3, .batches = {.batch = 8, .lanes = 2, .total = 30}, .augment = {}};
  const Order order(3, 10);
  uint64_t position = 0;
  for (uint64_t step = 0; step < 4; ++step) {
    for (int lane = 0; lane < 2; ++lane) {
      const Contents batch = expected(dataset, plan, step, lane);
      for (size_t i = 0; i < batch.samples.size(); ++i) {
        const uint64_t sample = order.at_stream(position++);  // also across the pass border
        EXPECT_EQ(batch.samples[i], sample);
        EXPECT_EQ(batch.targets[i], static_cast<int64_t>(sample));
        EXPECT_EQ(batch.inputs[i * 12 + 5], static_cast<float>(sample) + 5.0F / 1000);
      }
    }
  }
  EXPECT_EQ(position, 30U);
}

TEST(LoaderTest, GivesTheSameBatchesHoweverTheyAreRead) {
  const NumberedDataset dataset(50);
  for (const int threads : {0, 1, 2, 3}) {
    for (const uint64_t ahead : {0U, 1U, 2U, 5U}) {
      LoaderPlan plan{.seed = 9,
                      .batches = {.batch = 12, .lanes = 3, .total = 145},
                      .augment = some_augmentation(dataset),
                      .threads = threads,
                      .ahead = ahead};
      Loader loader(dataset, plan, all_lanes(3), 0);
      EXPECT_EQ(loader.steps(), 13U);
      for (uint64_t step = 0; step < loader.steps() + 2; ++step) {
        for (int lane = 0; lane < 3; ++lane) {
          const BorrowedBatch borrowed = *loader.take(step, lane);
          ASSERT_EQ(contents(*borrowed, dataset.schema()), expected(dataset, plan, step, lane));
        }
      }
      EXPECT_EQ((*loader.take(13, 0))->count, 0U) << "past the end";
    }
  }
}

TEST(LoaderTest, ServesLaneThreadsAtOnce) {
  const NumberedDataset dataset(1000);
  constexpr int kLanes = 6;
  constexpr uint64_t kSteps = 150;
  for (const int threads : {0, 1, 2}) {
    const LoaderPlan plan{.seed = 2,
                          .batches = {.batch = 24, .lanes = kLanes, .total = 24 * kSteps},
                          .augment = some_augmentation(dataset),
                          .threads = threads,
                          .ahead = 2};
    Loader loader(dataset, plan, all_lanes(kLanes), 0);
    std::atomic<int> wrong = 0;
    {
      std::vector<Thread> takers;
      for (int t = 0; t < 3; ++t) {
        takers.emplace_back("taker", [&, t] {
          for (uint64_t step = 0; step < kSteps; ++step) {
            for (int lane = t; lane < kLanes; lane += 3) {
              const BorrowedBatch borrowed = *loader.take(step, lane);
              if (contents(*borrowed, dataset.schema()) != expected(dataset, plan, step, lane)) {
                ++wrong;
              }
            }
          }
        });
      }
    }
    EXPECT_EQ(wrong, 0);
    const auto counters = loader.counters();
    EXPECT_EQ(counters.ready + counters.waited + counters.by_hand, kSteps * kLanes);
    // What is read ahead, one per taker and one per prefetch thread.
    EXPECT_LE(counters.buffers, 2U * kLanes + 3 + static_cast<uint64_t>(threads));
  }
}

TEST(LoaderTest, ReadsAheadWhileNobodyAsks) {
  const NumberedDataset dataset(100);
  const LoaderPlan plan{
      .batches = {.batch = 8, .lanes = 4, .total = 800}, .augment = {}, .threads = 1, .ahead = 2};
  Loader loader(dataset, plan, all_lanes(4), 0);
  for (uint64_t step = 0; step < 20; ++step) {
    // The buffers show that it is done: however slow the machine, it gets there.
    while (step == 0 && loader.counters().buffers < 8) std::this_thread::yield();
    for (int lane = 0; lane < 4; ++lane) {
      const BorrowedBatch borrowed = *loader.take(step, lane);
      EXPECT_EQ(borrowed->count, 2U);
    }
  }
  const auto counters = loader.counters();
  EXPECT_GE(counters.ready + counters.waited, 8U) << "at least the first two steps were ready";
}

TEST(LoaderTest, UsesBuffersAgain) {
  const NumberedDataset dataset(100);
  for (const int threads : {0, 1}) {
    const LoaderPlan plan{.batches = {.batch = 16, .lanes = 2, .total = 16000},
                          .augment = {},
                          .threads = threads,
                          .ahead = 2};
    Loader loader(dataset, plan, all_lanes(2), 0);
    std::set<const void*> addresses;
    for (uint64_t step = 0; step < 1000; ++step) {
      for (int lane = 0; lane < 2; ++lane) {
        const BorrowedBatch borrowed = *loader.take(step, lane);
        addresses.insert(borrowed->inputs.data());
        EXPECT_EQ(reinterpret_cast<uintptr_t>(borrowed->inputs.data()) % 64, 0U);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(borrowed->targets.data()) % 64, 0U);
      }
    }
    // Read ahead: 2 steps of 2 lanes; in the taker's hands: 1; in the prefetch thread's: 1.
    EXPECT_LE(addresses.size(), threads == 0 ? 1U : 6U);
    EXPECT_LE(loader.counters().buffers, threads == 0 ? 1U : 6U);
  }
}

TEST(LoaderTest, AStepCanBeRedone) {
  const NumberedDataset dataset(64);
  const LoaderPlan plan{.batches = {.batch = 8, .lanes = 2, .total = 640},
                        .augment = some_augmentation(dataset),
                        .threads = 1,
                        .ahead = 2};
  Loader loader(dataset, plan, all_lanes(2), 0);
  for (uint64_t step = 0; step < 30; ++step) {
    for (int again = 0; again < 3; ++again) {
      const BorrowedBatch first = *loader.take(step, 0);
      const BorrowedBatch kept = *loader.take(step, 0);  // also while the other is still out
      const BorrowedBatch other = *loader.take(step, 1);
      EXPECT_NE(first->inputs.data(), kept->inputs.data());
      ASSERT_EQ(contents(*first, dataset.schema()), expected(dataset, plan, step, 0));
      ASSERT_EQ(contents(*kept, dataset.schema()), expected(dataset, plan, step, 0));
      ASSERT_EQ(contents(*other, dataset.schema()), expected(dataset, plan, step, 1));
    }
  }
  // Jumps, back and forth, without telling the loader.
  for (const uint64_t step : {70U, 3U, 4U, 71U, 72U, 0U}) {
    ASSERT_EQ(contents(**loader.take(step, 1), dataset.schema()), expected(dataset, plan, step, 1));
  }
}

TEST(LoaderTest, ServesLanesItDoesNotReadAheadFor) {
  const NumberedDataset dataset(64);
  const LoaderPlan plan{
      .batches = {.batch = 8, .lanes = 4, .total = 640}, .augment = {}, .threads = 1, .ahead = 1};
  Loader loader(dataset, plan, {1, 3}, 5);
  for (uint64_t step = 5; step < 20; ++step) {
    for (int lane = 0; lane < 4; ++lane) {
      ASSERT_EQ(contents(**loader.take(step, lane), dataset.schema()),
                expected(dataset, plan, step, lane));
    }
  }
  EXPECT_GE(loader.counters().by_hand, 30U);
}

TEST(LoaderTest, RestartsFromAnyStepWithOtherLanes) {
  const NumberedDataset dataset(64);
  const LoaderPlan plan{
      .batches = {.batch = 8, .lanes = 4, .total = 8000}, .augment = {}, .threads = 2, .ahead = 3};
  Loader loader(dataset, plan, {0, 1}, 0);
  const BorrowedBatch held = *loader.take(0, 1);
  for (const uint64_t start : {10U, 2U, 500U, 0U}) {
    const std::vector<int> lanes = start % 4 == 0 ? std::vector{2, 0, 3} : std::vector{1};
    loader.restart(start, lanes);
    for (uint64_t step = start; step < start + 10; ++step) {
      for (const int lane : lanes) {
        ASSERT_EQ(contents(**loader.take(step, lane), dataset.schema()),
                  expected(dataset, plan, step, lane));
      }
    }
  }
  EXPECT_EQ(contents(*held, dataset.schema()), expected(dataset, plan, 0, 1))
      << "a borrowed batch is not touched by a restart";
}

TEST(LoaderTest, RestartsWhileOthersTake) {
  const NumberedDataset dataset(64);
  const LoaderPlan plan{
      .batches = {.batch = 8, .lanes = 4, .total = 80000}, .augment = {}, .threads = 2, .ahead = 2};
  Loader loader(dataset, plan, all_lanes(4), 0);
  std::atomic<int> wrong = 0;
  std::vector<Thread> takers;
  for (int lane = 0; lane < 4; ++lane) {
    takers.emplace_back("taker", [&, lane] {
      for (uint64_t step = 0; step < 400; ++step) {
        const BorrowedBatch borrowed = *loader.take(step, lane);
        if (contents(*borrowed, dataset.schema()) != expected(dataset, plan, step, lane)) ++wrong;
      }
    });
  }
  for (uint64_t i = 0; i < 50; ++i) {
    loader.restart(i * 8, i % 2 == 0 ? std::vector{3, 1} : all_lanes(4));
    std::this_thread::yield();
  }
  takers.clear();
  EXPECT_EQ(wrong, 0);
}

TEST(LoaderTest, ALeaseMayOutliveTheLoader) {
  const NumberedDataset dataset(20);
  BorrowedBatch borrowed;
  {
    const LoaderPlan plan{.batches = {.batch = 4, .lanes = 1, .total = 40}, .augment = {}};
    Loader loader(dataset, plan, {0}, 0);
    borrowed = *loader.take(2, 0);
  }
  EXPECT_EQ(borrowed->count, 4U);
  borrowed.release();
  EXPECT_FALSE(borrowed);
}

TEST(LoaderTest, MoreLanesThanSamplesInABatch) {
  const NumberedDataset dataset(5);
  const LoaderPlan plan{.batches = {.batch = 3, .lanes = 8, .total = 10}, .augment = {}};
  Loader loader(dataset, plan, all_lanes(8), 0);
  uint64_t samples = 0;
  for (uint64_t step = 0; step < loader.steps(); ++step) {
    for (int lane = 0; lane < 8; ++lane) samples += (*loader.take(step, lane))->count;
  }
  EXPECT_EQ(samples, 10U);
}

TEST(ReadRangeTest, ReadsAsItIsAndStopsAtTheEnd) {
  const NumberedDataset dataset(10);
  Batch batch;
  ASSERT_TRUE(read_range(dataset, 8, 5, batch).ok());
  EXPECT_EQ(batch.count, 2U);
  EXPECT_EQ(contents(batch, dataset.schema()).targets, (std::vector<int64_t>{8, 9}));
  const void* where = batch.inputs.data();
  ASSERT_TRUE(read_range(dataset, 0, 2, batch).ok());
  EXPECT_EQ(batch.inputs.data(), where) << "the buffer is used again";
  ASSERT_TRUE(read_range(dataset, 100, 5, batch).ok());
  EXPECT_EQ(batch.count, 0U);
  const std::vector<uint64_t> picked = {7, 7, 1};
  ASSERT_TRUE(read_samples(dataset, picked, batch).ok());
  EXPECT_EQ(batch.samples, picked);
  EXPECT_EQ(contents(batch, dataset.schema()).targets, (std::vector<int64_t>{7, 7, 1}));
}

}  // namespace
}  // namespace muster::data
