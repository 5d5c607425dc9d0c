// The real loader over data in blocks, in a store that is slow, fails, stalls or gives damage: the
// batches are those of the same data in memory, or there is an error that says what is wrong.
#include "muster/data/blocks/block_dataset.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/clock.h"
#include "muster/base/forwarding_file_system_testing.h"
#include "muster/base/random.h"
#include "muster/data/blocks/blocks_testing.h"
#include "muster/data/blocks/replacements.h"
#include "muster/data/blocks/strata.h"
#include "muster/data/data_testing.h"
#include "muster/data/loader.h"
#include "muster/store/retry.h"

namespace muster::data {
namespace {

using std::chrono::milliseconds;
using testing::FakeStore;
using ::testing::HasSubstr;
using testing::make_index;
using testing::NumberedDataset;
using testing::NumbersFormat;
using testing::TempDir;

constexpr uint64_t kLanes = 4;

std::vector<uint32_t> some_counts(size_t blocks) {
  std::vector<uint32_t> counts;
  for (size_t i = 0; i < blocks; ++i) counts.push_back(static_cast<uint32_t>(5 + i % 7));
  return counts;
}

// Waits for something that another thread does.
template <typename Condition>
bool eventually(const Condition& condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

class BlockDatasetTest : public ::testing::Test {
 protected:
  BlockDatasetTest() {
    BlockIndex index = make_index(some_counts(120), 8, 10);
    objects_ = NumbersFormat::write(index);
    store_ = std::make_shared<FakeStore>(objects_);
    index_ = std::make_shared<const BlockIndex>(std::move(index));
    memory_ = std::make_unique<NumberedDataset>(index_->samples());
    options_.fetch.threads = 3;
    plan_.seed = 5;
    plan_.batches = {.batch = 22, .lanes = kLanes, .total = 2 * index_->samples() + 7};
    plan_.augment = *Augmenter::make({.shift = 1, .flip = true}, memory_->schema());
    plan_.order = std::make_shared<Strata>(index_, plan_.seed, plan_.batches.batch, kLanes,
                                           StrataShape{.tracks = 3, .rows = 2});
  }

  Result<std::unique_ptr<BlockDataset>> try_open() {
    return BlockDataset::open(index_, std::make_unique<NumbersFormat>(index_->samples()), store_,
                              options_, *fs_);
  }
  std::unique_ptr<BlockDataset> open() {
    auto data = try_open();
    EXPECT_TRUE(data.ok()) << data.error().message();
    return *std::move(data);
  }
  // Through the store that a job's data is read through. `before`: FakeStore::set_before.
  std::unique_ptr<BlockDataset> open_patiently(FakeStore::Before before) {
    auto fake = std::make_unique<FakeStore>(objects_);
    fake->set_before(std::move(before));
    store::RetryOptions retries;
    retries.backoff.first = milliseconds(1);
    retries.backoff.most = milliseconds(5);
    retries.hedges = 0;  // a busy machine shall not change what is counted
    retries.seed = 1;
    patient_ = std::make_shared<store::RetryStore>(std::move(fake), clock_, retries);
    auto data = BlockDataset::open(index_, std::make_unique<NumbersFormat>(index_->samples()),
                                   patient_, options_, *fs_);
    EXPECT_TRUE(data.ok()) << data.error().message();
    return *std::move(data);
  }
  static std::vector<int> all_lanes() { return {0, 1, 2, 3}; }

  // The batch is that of the data in memory.
  void expect_equal(const Batch& batch, uint64_t step, int lane) {
    Batch expected;
    ASSERT_TRUE(fill_batch(*memory_, *plan_.order, plan_, step, lane, expected).ok());
    ASSERT_EQ(batch.samples, expected.samples) << "step " << step << ", lane " << lane;
    if (batch.count == 0) return;  // then there may be no memory to compare
    ASSERT_EQ(std::memcmp(batch.inputs.data(), expected.inputs.data(),
                          batch.count * memory_->schema().input_bytes()),
              0);
    ASSERT_EQ(std::memcmp(batch.targets.data(), expected.targets.data(), batch.count * 8), 0);
  }
  void expect_whole_job(const BlockDataset& data, const std::vector<int>& lanes,
                        uint64_t first_step = 0) {
    Loader loader(data, plan_, lanes, first_step);
    for (uint64_t step = first_step; step < loader.steps(); ++step) {
      for (const int lane : lanes) {
        const auto batch = loader.take(step, lane);
        ASSERT_TRUE(batch.ok()) << batch.error().message();
        expect_equal(**batch, step, lane);
        if (HasFatalFailure()) return;
      }
    }
    EXPECT_EQ(loader.waiting(), "");
  }

  std::unique_ptr<FileSystem> fs_ = posix_file_system();
  SystemClock clock_;
  std::map<std::string, std::string> objects_;
  std::shared_ptr<FakeStore> store_;
  std::shared_ptr<store::RetryStore> patient_;  // null: open_patiently() was not called
  std::shared_ptr<const BlockIndex> index_;
  std::unique_ptr<NumberedDataset> memory_;
  StreamOptions options_;
  LoaderPlan plan_;
};

TEST_F(BlockDatasetTest, GivesTheBatchesOfDataInMemory) {
  for (const int threads : {0, 1, 3}) {
    for (const uint64_t memory : {uint64_t{0}, uint64_t{2000}, uint64_t{1} << 30}) {
      for (const auto& lanes : {all_lanes(), std::vector{2}, std::vector{3, 0}}) {
        plan_.threads = threads;
        options_.fetch.memory = memory;
        options_.fetch.threads = threads + 1;
        const auto data = open();
        expect_whole_job(*data, lanes, threads == 1 ? 17 : 0);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(BlockDatasetTest, InTheOrderFullToo) {
  plan_.order = std::make_shared<FullOrder>(plan_.seed, index_->samples());
  const auto data = open();
  expect_whole_job(*data, all_lanes());
}

TEST_F(BlockDatasetTest, AfterAShortStepToo) {
  plan_.batches.first_step = 9;
  plan_.batches.first_sample = 9 * 22 - 13;
  const auto data = open();
  expect_whole_job(*data, {1, 2}, 9);
}

TEST_F(BlockDatasetTest, HashAndSchemaAreOfTheIndex) {
  const auto data = open();
  EXPECT_EQ(data->schema().input_shape, memory_->schema().input_shape);
  EXPECT_EQ(data->size(), memory_->size());
  EXPECT_EQ(data->hash(), open()->hash());
  BlockIndex other = *index_;
  other.blocks[7].hash.low ^= 1;
  index_ = std::make_shared<const BlockIndex>(other);
  EXPECT_NE(data->hash(), open()->hash());
  Batch batch;
  ASSERT_TRUE(read_range(*data, 100, 20, batch).ok());
  EXPECT_EQ(batch.count, 20U);
  int64_t target = 0;
  std::memcpy(&target, batch.targets.data() + 8, 8);
  EXPECT_EQ(target, 101);
}

TEST_F(BlockDatasetTest, RefusesAnIndexWithoutSamplesAndDataThatIsNotThere) {
  BlockIndex empty;
  index_ = std::make_shared<const BlockIndex>(empty);
  EXPECT_EQ(try_open().error().kind(), ErrorKind::kData);
  index_ = std::make_shared<const BlockIndex>(make_index({5, 5}));
  store_ = std::make_shared<FakeStore>(std::map<std::string, std::string>{});
  const auto opened = try_open();
  EXPECT_EQ(opened.error().kind(), ErrorKind::kData);
  EXPECT_THAT(opened.error().message(), HasSubstr("'object-0'"));
}

// Each block is fetched once for each lane that reads it, and leaves with its last row.
TEST_F(BlockDatasetTest, FetchesEachBlockOnceAndHoldsFew) {
  plan_.batches.total = index_->samples();
  options_.fetch.memory = 0;  // nothing but what is needed
  const auto data = open();
  expect_whole_job(*data, {1});
  std::set<uint32_t> used;
  const auto& strata = dynamic_cast<const Strata&>(*plan_.order);
  for (const auto& piece : strata.table(0, 1)->pieces) used.insert(piece.block);
  const auto counters = data->cache().counters();
  // The first block once more, for the schema; and those of the first step, which is read before
  // the schedule is made.
  EXPECT_LE(counters.fetched, used.size() + 12);
  // Three tracks and what is open besides, of at most 11 samples and what decoding adds.
  EXPECT_LE(counters.most_bytes, uint64_t{3 + 6} * (11 * 8 + 1));
}

TEST_F(BlockDatasetTest, FetchesAheadWithinItsMemory) {
  plan_.threads = 0;
  options_.fetch.memory = 1500;
  const auto data = open();
  const Loader loader(*data, plan_, all_lanes(), 0);
  // Nothing was taken, and yet the memory fills up, but for what decoding is to take.
  EXPECT_TRUE(eventually([&] { return data->cache().counters().bytes > 1300; }));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_LE(data->cache().counters().bytes, 1500U);
}

// Blocks of 40 to 88 bytes that hold 400 more once they are decoded.
TEST_F(BlockDatasetTest, FetchesAheadWhatFitsOnceItIsDecoded) {
  plan_.threads = 0;
  options_.fetch.memory = 20000;
  auto format = std::make_unique<NumbersFormat>(index_->samples());
  format->memory = 400;
  const auto data = *BlockDataset::open(index_, std::move(format), store_, options_, *fs_);
  {
    const Loader loader(*data, plan_, all_lanes(), 0);
    EXPECT_TRUE(eventually([&] { return data->cache().counters().blocks >= 15; }));
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_LE(data->cache().counters().blocks, 20000U / 440) << "all 120 fit as they are stored";
  }
  expect_whole_job(*data, all_lanes());
}

TEST_F(BlockDatasetTest, StoredBytesThatAreNotNeededAreReleased) {
  for (const bool copies : {false, true}) {
    const TempDir dir;  // blocks are written to disk while they are decoded
    options_.cache = dir.path("cache");
    auto format = std::make_unique<NumbersFormat>(index_->samples());
    format->memory = 100;
    format->copies = copies;
    const auto data = *BlockDataset::open(index_, std::move(format), store_, options_, *fs_);
    Batch batch;
    ASSERT_TRUE(read_range(*data, 0, index_->samples(), batch).ok());
    EXPECT_EQ(data->cache().counters().blocks, index_->blocks.size());
    // Once they are on the disk.
    const uint64_t bytes = index_->blocks.size() * 100 + (copies ? 0 : index_->bytes());
    EXPECT_TRUE(eventually([&] { return data->cache().counters().bytes == bytes; }))
        << data->cache().counters().bytes << ", not " << bytes;
    expect_whole_job(*data, all_lanes());
    EXPECT_EQ(data->disk()->problem(), "");
  }
}

// A job limited by time alone has no last step to look ahead to.
TEST_F(BlockDatasetTest, LooksAheadNoFurtherThanAPassAndKeepsWhatFits) {
  plan_.batches.total = uint64_t{1} << 60;
  const std::shared_ptr<const SampleOrder> strata = plan_.order;
  const auto full = std::make_shared<FullOrder>(plan_.seed, index_->samples());
  for (const auto& [order, most_uses] :
       {std::pair{strata, 2 * index_->blocks.size()},
        std::pair{std::shared_ptr<const SampleOrder>(full), index_->samples() + 22}}) {
    plan_.order = order;
    const auto data = open();
    const uint64_t before = store_->reads();
    const auto read = [&] { return store_->reads() - before; };
    Loader loader(*data, plan_, all_lanes(), 0);
    const auto all = [&] { return data->cache().counters().blocks == index_->blocks.size(); };
    EXPECT_TRUE(eventually(all));
    std::this_thread::sleep_for(milliseconds(50));  // time to look much further ahead
    EXPECT_LE(data->cache().counters().uses, most_uses);
    for (uint64_t step = 0; step < 3 * index_->samples() / 22; ++step) {
      for (const int lane : all_lanes()) {
        const auto batch = loader.take(step, lane);
        ASSERT_TRUE(batch.ok()) << batch.error().message();
        expect_equal(**batch, step, lane);
        if (HasFatalFailure()) return;
      }
    }
    EXPECT_LE(read(), index_->blocks.size()) << "once each, though there were three passes";
    EXPECT_LE(data->cache().counters().uses, most_uses);
  }
}

TEST_F(BlockDatasetTest, ABlockIsDecodedOnce) {
  auto format = std::make_unique<NumbersFormat>(index_->samples());
  const NumbersFormat& seen = *format;
  const auto data = *BlockDataset::open(index_, std::move(format), store_, options_, *fs_);
  plan_.batches.total = index_->samples();
  plan_.threads = 2;
  expect_whole_job(*data, {1});
  const auto& strata = dynamic_cast<const Strata&>(*plan_.order);
  // And the first block, when the data is opened.
  EXPECT_LE(seen.decoded, strata.table(0, 1)->pieces.size() + 1);
}

TEST_F(BlockDatasetTest, AFetchThatFailsIsTriedAgain) {
  std::atomic<uint64_t> reads = 0;
  const auto data = open_patiently([&](const store::Object&, uint64_t) -> Status {
    if (reads++ % 3 != 0) return Error(ErrorKind::kIo, "the connection was reset");
    return {};
  });
  expect_whole_job(*data, all_lanes());
  EXPECT_GT(patient_->counters().retries, 100U);
}

TEST_F(BlockDatasetTest, DamageOnTheWayIsReadAgain) {
  options_.fetch.threads = 1;       // so that it is every second read of a block
  std::atomic<uint64_t> reads = 0;  // outlives the threads that fetch
  const auto data = open();
  store_->set_after([&](const store::Object&, uint64_t, std::span<std::byte> bytes) {
    if (reads++ % 2 == 0) bytes[bytes.size() / 2] ^= std::byte{1};
  });
  expect_whole_job(*data, all_lanes());
  EXPECT_GT(data->cache().counters().damaged, 50U);
}

// The step of the plan that first reads this block, and the lane.
std::pair<uint64_t, int> first_use(const LoaderPlan& plan, const BlockIndex& index, size_t block) {
  for (uint64_t step = 0;; ++step) {
    for (uint64_t lane = 0; lane < kLanes; ++lane) {
      const Slice slice = lane_slice(plan.batches, step, lane);
      std::vector<uint64_t> samples(slice.count);
      plan.order->samples(slice, samples);
      for (const uint64_t sample : samples) {
        if (index.block_of(sample) == block) return {step, static_cast<int>(lane)};
      }
    }
  }
}

TEST_F(BlockDatasetTest, DamageThatStaysIsTheErrorOfTheStepThatNeedsIt) {
  // One that is not needed at once, so that it is fetched, and fails, before its step.
  size_t bad = 50;
  while (first_use(plan_, *index_, bad).first < 5) ++bad;
  const auto [bad_step, bad_lane] = first_use(plan_, *index_, bad);
  const std::string object = index_->objects[index_->blocks[bad].object].name;
  store_->set_after([&](const store::Object& read, uint64_t offset, std::span<std::byte> bytes) {
    if (read.name == object && offset == index_->blocks[bad].offset) bytes[3] ^= std::byte{1};
  });
  const auto data = open();
  Loader loader(*data, plan_, all_lanes(), 0);
  for (uint64_t step = 0; step <= bad_step; ++step) {
    for (int lane = 0; lane < static_cast<int>(kLanes); ++lane) {
      const auto batch = loader.take(step, lane);
      if (step == bad_step && lane == bad_lane) {
        ASSERT_FALSE(batch.ok());
        EXPECT_EQ(batch.error().kind(), ErrorKind::kData);
        EXPECT_THAT(batch.error().message(),
                    HasSubstr(fmt::format("block {} ('{}', ", bad, object)));
        EXPECT_THAT(batch.error().message(), HasSubstr("damaged"));
        // Also if asked again.
        EXPECT_EQ(loader.take(step, lane).error().message(), batch.error().message());
        return;
      }
      ASSERT_TRUE(batch.ok()) << batch.error().message();
    }
  }
}

// With LoaderPlan::finds_damage. Then the blocks are replaced, in all steps from there on.
TEST_F(BlockDatasetTest, DamageIsToldAndReplaced) {
  const std::vector<uint64_t> bad = {100, 31, 77};
  store_->set_after([&](const store::Object& read, uint64_t offset, std::span<std::byte> bytes) {
    for (const uint64_t block : bad) {
      const Block& it = index_->blocks[block];
      if (read.name == index_->objects[it.object].name && offset == it.offset)
        bytes[0] ^= std::byte{4};
    }
  });
  plan_.finds_damage = true;
  for (const int threads : {0, 2}) {
    plan_.threads = threads;
    const auto data = open();
    Loader loader(*data, plan_, all_lanes(), 0);
    std::vector<uint64_t> damaged;
    uint64_t replaced = 0;
    for (uint64_t step = 0; step < loader.steps(); ++step) {
      for (int lane = 0; lane < static_cast<int>(kLanes); ++lane) {
        const auto take = [&] {
          auto batch = loader.take(step, lane);
          EXPECT_TRUE(batch.ok()) << batch.error().message();
          return *std::move(batch);
        };
        auto batch = take();
        while (batch->damage) {
          EXPECT_EQ(batch->count, 0U);
          EXPECT_TRUE(batch->samples.empty());
          const uint64_t block = batch->damage->block;
          EXPECT_THAT(batch->damage->what, HasSubstr(fmt::format("block {} ('object-", block)));
          ASSERT_NE(std::ranges::find(bad, block), bad.end());
          ASSERT_EQ(std::ranges::find(damaged, block), damaged.end()) << "once each";
          damaged.push_back(block);
          ASSERT_TRUE(loader.replace(damaged, step).ok());
          batch = take();
        }
        // The data in memory has no blocks, so what the order says is replaced here.
        const Slice slice = lane_slice(plan_.batches, step, static_cast<uint64_t>(lane));
        std::vector<uint64_t> samples(slice.count);
        plan_.order->samples(slice, samples);
        uint64_t here = 0;
        if (!damaged.empty()) {
          here = (*Replacements::make(*index_, plan_.seed, damaged))->apply(samples);
        }
        ASSERT_EQ(batch->samples, samples);
        EXPECT_EQ(batch->replaced, here);
        replaced += here;
        for (uint64_t i = 0; i < batch->count; ++i) {
          uint64_t target = 0;
          std::memcpy(&target, batch->targets.data() + 8 * i, 8);
          ASSERT_EQ(target, samples[i]);
        }
      }
    }
    EXPECT_EQ(damaged.size(), bad.size());
    uint64_t of_a_pass = 0;
    for (const uint64_t block : bad) of_a_pass += index_->blocks[block].count;
    EXPECT_GE(replaced, 2 * of_a_pass);  // and the 7 samples of a third pass may be among them
    EXPECT_LE(replaced, 2 * of_a_pass + 7);
    // Without damage nothing is replaced any more.
    ASSERT_TRUE(loader.replace({}, 0).ok());
    const auto [step, lane] = first_use(plan_, *index_, 31);
    const auto batch = loader.take(step, lane);
    ASSERT_TRUE(batch.ok());
    EXPECT_TRUE((*batch)->damage.has_value());
  }
}

TEST_F(BlockDatasetTest, TooMuchDamageIsRefusedAndChangesNothing) {
  const auto data = open();
  Loader loader(*data, plan_, all_lanes(), 0);
  std::vector<uint64_t> many;
  for (uint64_t block = 0; block < 13; ++block) many.push_back(block);
  const auto refused = loader.replace(many, 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("13 of 120 blocks are damaged"));
  const auto batch = loader.take(0, 0);
  ASSERT_TRUE(batch.ok());
  expect_equal(**batch, 0, 0);
  // Data in memory has no blocks.
  Loader whole(*memory_, plan_, all_lanes(), 0);
  EXPECT_EQ(whole.replace(many, 0).error().kind(), ErrorKind::kCheckpoint);
}

// A store that is away and an object that was changed are errors as ever.
TEST_F(BlockDatasetTest, OnlyDamageIsTakenForDamage) {
  plan_.finds_damage = true;
  for (const ErrorKind kind : {ErrorKind::kData, ErrorKind::kIo}) {
    store_->set_before({});
    const auto data = open();  // another one: that a block cannot be read for good is remembered
    store_->set_before([&](const store::Object& object, uint64_t) -> Status {
      return Error(kind, "'{}' was changed since it was listed", object.name);
    });
    Loader loader(*data, plan_, all_lanes(), 0);
    const auto batch = loader.take(0, 0);
    ASSERT_FALSE(batch.ok());
    EXPECT_EQ(batch.error().kind(), kind);
  }
}

TEST_F(BlockDatasetTest, ASampleThatCannotBeDecodedIsDamageOfItsBlock) {
  BlockIndex index = make_index({3, 3});
  auto objects = NumbersFormat::write(index);
  objects["object-0"][8 * 4 + 7] = 1;  // sample 4 is far too large
  index.blocks[1].hash = {};
  store_ = std::make_shared<FakeStore>(objects);
  index_ = std::make_shared<const BlockIndex>(index);
  const auto data = open();
  Batch batch;
  batch.reserve(data->schema(), 2);
  std::optional<Damage> damage;
  const std::vector<uint64_t> samples = {0, 4};
  EXPECT_FALSE(
      data->read_or_find_damage(samples, batch.inputs.data(), batch.targets.data(), {}, damage)
          .ok());
  ASSERT_TRUE(damage);
  EXPECT_EQ(damage->block, 1U);
  EXPECT_THAT(damage->what, HasSubstr("sample 4, 1 of block 1 ('object-0'"));
  EXPECT_TRUE(data->read_or_find_damage({samples.data(), 1}, batch.inputs.data(),
                                        batch.targets.data(), {}, damage)
                  .ok());
  EXPECT_FALSE(damage);
}

TEST_F(BlockDatasetTest, AnObjectThatIsGoneIsAnErrorAtOnce) {
  const auto data = open();
  store_->set_before([&](const store::Object& object, uint64_t) -> Status {
    return Error(ErrorKind::kData, "'{}' was changed since it was listed", object.name);
  });
  Loader loader(*data, plan_, all_lanes(), 0);
  const auto batch = loader.take(0, 0);
  ASSERT_FALSE(batch.ok());
  EXPECT_EQ(batch.error().kind(), ErrorKind::kData);
  EXPECT_THAT(batch.error().message(), HasSubstr("was changed since it was listed"));
}

TEST_F(BlockDatasetTest, ASampleThatCannotBeDecodedIsNamed) {
  BlockIndex index = make_index({3, 3});
  auto objects = NumbersFormat::write(index);
  objects["object-0"][8 * 4 + 7] = 1;  // sample 4 is far too large
  index.blocks[1].hash = {};
  store_ = std::make_shared<FakeStore>(objects);
  index_ = std::make_shared<const BlockIndex>(index);
  const auto data = open();
  Batch batch;
  EXPECT_TRUE(read_range(*data, 0, 4, batch).ok());
  const auto status = read_range(*data, 3, 3, batch);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind(), ErrorKind::kData);
  EXPECT_THAT(status.error().message(), HasSubstr("sample 4, 1 of block 1 ('object-0'"));
}

TEST_F(BlockDatasetTest, AnErrorThatMayPassIsNotKept) {
  const auto data = open();
  store_->set_before([&](const store::Object&, uint64_t) -> Status {
    return Error(ErrorKind::kIo, "no route to host");
  });
  Loader loader(*data, plan_, all_lanes(), 0);
  const auto batch = loader.take(0, 1);
  ASSERT_FALSE(batch.ok());
  EXPECT_EQ(batch.error().kind(), ErrorKind::kIo);
  EXPECT_THAT(batch.error().message(), HasSubstr("no route to host"));
  // And used again when it is back.
  store_->set_before({});
  const auto again = loader.take(0, 1);
  ASSERT_TRUE(again.ok()) << again.error().message();
  expect_equal(**again, 0, 1);
}

// A store that can be stopped.
struct Gate {
  std::atomic<bool> open = false;
  std::atomic<int> waiting = 0;
  Status pass() {
    ++waiting;
    while (!open) std::this_thread::sleep_for(milliseconds(1));
    --waiting;
    return {};
  }
};

TEST_F(BlockDatasetTest, WaitsForAStoreThatStallsAndSaysSo) {
  for (const int threads : {0, 1}) {
    plan_.threads = threads;
    const auto data = open();
    const auto gate = std::make_shared<Gate>();
    store_->set_before([gate](const store::Object&, uint64_t) { return gate->pass(); });
    std::atomic<int> asked = 0;
    plan_.keep_waiting = [&] {
      ++asked;
      return true;
    };
    Loader loader(*data, plan_, all_lanes(), 0);
    std::atomic<bool> taken = false;
    const Thread taker("taker", [&] {
      const auto batch = loader.take(0, 0);
      ASSERT_TRUE(batch.ok());
      expect_equal(**batch, 0, 0);
      taken = true;
    });
    EXPECT_TRUE(eventually([&] { return asked >= 2 && !loader.waiting().empty(); }));
    EXPECT_FALSE(taken);
    EXPECT_THAT(loader.waiting(),
                ::testing::MatchesRegex("waiting for data: [0-9]+ requests?, oldest [0-9.]+ s"));
    gate->open = true;
    EXPECT_TRUE(eventually([&] { return taken.load(); }));
    store_->set_before({});
  }
}

TEST_F(BlockDatasetTest, AWaitCanBeEnded) {
  for (const int threads : {0, 1}) {
    plan_.threads = threads;
    const auto data = open();
    const auto gate = std::make_shared<Gate>();
    store_->set_before([gate](const store::Object&, uint64_t) { return gate->pass(); });
    plan_.keep_waiting = [] { return false; };
    {
      Loader loader(*data, plan_, all_lanes(), 0);
      const auto batch = loader.take(0, 0);
      ASSERT_FALSE(batch.ok());
      EXPECT_EQ(batch.error().kind(), ErrorKind::kInterrupted);
      loader.restart(3, {1});  // while requests are under way
      EXPECT_FALSE(loader.take(3, 1).ok());
    }  // the loader ends, though its prefetch thread waits for data
    gate->open = true;
    store_->set_before({});
    plan_.keep_waiting = {};
    expect_whole_job(*data, {2});
  }
}

TEST_F(BlockDatasetTest, ServesLaneThreadsWhileRostersChange) {
  options_.fetch.memory = 3000;
  std::atomic<uint64_t> reads = 0;  // outlives the threads that fetch
  const auto data = open_patiently([&](const store::Object&, uint64_t) -> Status {
    if (reads++ % 5 == 0) return Error(ErrorKind::kIo, "busy");
    return {};
  });
  plan_.threads = 2;
  Loader loader(*data, plan_, all_lanes(), 0);
  std::atomic<int> wrong = 0;
  {
    std::vector<Thread> takers;
    for (int lane = 0; lane < static_cast<int>(kLanes); ++lane) {
      takers.emplace_back("taker", [&, lane] {
        Batch expected;
        for (uint64_t step = 0; step < 90; ++step) {
          const auto batch = loader.take(step, lane);
          if (!fill_batch(*memory_, *plan_.order, plan_, step, lane, expected).ok() ||
              !batch.ok() || (*batch)->samples != expected.samples ||
              std::memcmp((*batch)->inputs.data(), expected.inputs.data(),
                          expected.count * memory_->schema().input_bytes()) != 0) {
            ++wrong;
          }
        }
      });
    }
    for (uint64_t i = 0; i < 30; ++i) {
      loader.restart(i * 3, i % 2 == 0 ? std::vector{3, 1} : all_lanes());
      std::this_thread::sleep_for(milliseconds(2));
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(BlockDatasetTest, TheDiskCacheServesTheNextPassAndTheNextRun) {
  const TempDir dir;
  options_.cache = dir.path("cache");
  options_.fetch.memory = 1000;  // so that nothing stays in memory from pass to pass
  {
    const auto data = open();
    expect_whole_job(*data, all_lanes());
    // Both passes: what was fetched once is not fetched again.
    EXPECT_EQ(store_->reads(), index_->blocks.size());
    EXPECT_GE(data->cache().counters().from_disk, index_->blocks.size() / 2);
  }
  const uint64_t before = store_->reads();
  const auto data = open();
  expect_whole_job(*data, all_lanes());
  EXPECT_EQ(store_->reads(), before);
  EXPECT_EQ(data->disk()->problem(), "");
  // Damaged, then deleted: fetched again.
  for (const auto& file : std::filesystem::recursive_directory_iterator(options_.cache)) {
    if (file.is_regular_file()) std::filesystem::resize_file(file.path(), 10);
  }
  expect_whole_job(*open(), {0});
  EXPECT_GT(store_->reads(), before);
  std::filesystem::remove_all(options_.cache);
  expect_whole_job(*data, {1});
}

TEST_F(BlockDatasetTest, ACacheDirectoryThatCannotBeMadeIsDoneWithout) {
  const TempDir dir;
  (void)dir.write("file", "not a directory");
  options_.cache = dir.path("file/cache");
  const auto data = open();
  EXPECT_THAT(data->fetched()->cache_problem, HasSubstr("keeps no further blocks"));
  expect_whole_job(*data, {1});
}

// A disk on which no file is made before release(), or for 30 s.
class StalledDisk final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override {
    ++waiting;
    for (int i = 0; i < 30000 && !released; ++i) std::this_thread::sleep_for(milliseconds(1));
    if (!released) late = true;
    return ForwardingFileSystem::create(path);
  }
  std::atomic<int> waiting = 0;
  std::atomic<bool> released = false;
  std::atomic<bool> late = false;
};

TEST_F(BlockDatasetTest, ASlowDiskHoldsUpNoReader) {
  const TempDir dir;
  options_.cache = dir.path("cache");
  StalledDisk disk(*fs_);
  auto opened = BlockDataset::open(index_, std::make_unique<NumbersFormat>(index_->samples()),
                                   store_, options_, disk);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  const auto data = *std::move(opened);
  EXPECT_TRUE(eventually([&] { return disk.waiting > 0; }));
  // The block that is being written is read, and counted; and another one.
  Batch batch;
  EXPECT_TRUE(read_range(*data, 0, 3, batch).ok());
  EXPECT_TRUE(read_range(*data, index_->blocks[7].first, 3, batch).ok());
  EXPECT_FALSE(disk.late);
  EXPECT_EQ(data->cache().counters().blocks, 2U);
  disk.released = true;
  expect_whole_job(*data, all_lanes());
}

TEST_F(BlockDatasetTest, BytesThatWaitForASlowDiskCount) {
  const TempDir dir;
  options_.cache = dir.path("cache");
  StalledDisk disk(*fs_);
  auto format = std::make_unique<NumbersFormat>(index_->samples());
  format->memory = 100;
  format->copies = true;
  const auto data = *BlockDataset::open(index_, std::move(format), store_, options_, disk);
  Batch batch;
  ASSERT_TRUE(read_range(*data, 0, 3, batch).ok());
  EXPECT_TRUE(eventually([&] { return disk.waiting > 0; }));
  EXPECT_EQ(data->cache().counters().bytes, 100 + index_->blocks[0].length);
  disk.released = true;
  EXPECT_TRUE(eventually([&] { return data->cache().counters().bytes == 100; }));
}

}  // namespace
}  // namespace muster::data
