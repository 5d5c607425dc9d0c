#include "muster/train/state/counters.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "muster/base/file_system.h"
#include "muster/ckpt/snapshot.h"
#include "muster/optim/optimizer.h"
#include "muster/track/temp_directory_testing.h"
#include "muster/train/state/arena.h"

namespace muster::train {
namespace {

// testdata/format-1: step 6 of a job with the layers linear (4), batchnorm, relu, linear (2) on two
// columns, adam, 2 lanes, as the last version that wrote format 1 saved it.
class CountersTest : public testing::Test {
 protected:
  void SetUp() override {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): tests have one thread here
    const char* source = std::getenv("MUSTER_SOURCE_DIR");
    if (source == nullptr) GTEST_SKIP() << "MUSTER_SOURCE_DIR is not set; run it through ctest";
    ckpt::SnapshotStore store(
        *files_, std::string(source) + "/muster/train/state/testdata/format-1", 3, false);
    auto loaded = store.load(6);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message();
    old_.emplace(*std::move(loaded));
  }
  static Arena arena() {
    using optim::Role;
    std::vector<TensorSpec> tensors;
    const auto add = [&](const char* name, Role role, std::vector<int64_t> shape) {
      tensors.push_back({{name, static_cast<int>(shape.size()), role}, std::move(shape)});
    };
    add("0.weight", Role::kWeight, {4, 2});
    add("0.bias", Role::kWeight, {4});
    add("1.weight", Role::kWeight, {4});
    add("1.bias", Role::kWeight, {4});
    add("3.weight", Role::kWeight, {2, 4});
    add("3.bias", Role::kWeight, {2});
    add("1.running_mean", Role::kStatistic, {4});
    add("1.running_var", Role::kStatistic, {4});
    return {std::move(tensors), {"exp_avg", "exp_avg_sq"}};
  }

  std::unique_ptr<FileSystem> files_ = posix_file_system();
  std::optional<ckpt::Snapshot> old_;
};

TEST_F(CountersTest, FormatOneIsRead) {
  Arena arena = this->arena();
  ASSERT_TRUE(arena.load_model(old_->model).ok());
  const auto loaded = arena.load_state(old_->state);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  EXPECT_TRUE(arena.counters_are_sealed());
  EXPECT_EQ(arena.weights_hash().hex(), old_->meta.at("weights_hash").get<std::string>());
  const Counters& counters = arena.counters();
  EXPECT_EQ(counters.step, 6);
  EXPECT_EQ(counters.samples, 48U);
  EXPECT_EQ(counters.skipped, 0U);
  EXPECT_EQ(counters.ledger, 0xeb105b11ef6fb7bdU);
  EXPECT_EQ(counters.redo.attempt, 0);
  EXPECT_EQ(counters.redone, 1U);
  EXPECT_EQ(counters.fewest_gradient_bits, 21);
  EXPECT_EQ(counters.last.samples, 8U);
  EXPECT_DOUBLE_EQ(counters.last.lr, 0.01);
  EXPECT_EQ(counters.evaluation.step, 6);
  EXPECT_EQ(counters.evaluation.values[0], old_->meta.at("test").at("loss").get<double>());
  EXPECT_EQ(counters.evaluation.values[1], 1.0);
  EXPECT_EQ(counters.best.step, 6);
  EXPECT_EQ(counters.best.stale, 0);
  EXPECT_EQ(counters.replaced.count, 0U);
}

TEST_F(CountersTest, ComeBackAsTheyWere) {
  Arena arena = this->arena();
  ASSERT_TRUE(arena.load_state(old_->state).ok());
  arena.counters().redo = {2, 1};
  arena.counters().replaced.samples = 77;
  arena.counters().replaced.attempts = 1;
  arena.counters().replaced.count = 2;
  arena.counters().replaced.blocks[0] = 40;
  arena.counters().replaced.blocks[1] = 7;
  const track::TempDirectory folder;
  const auto path = folder.path() + "/state.safetensors";
  ASSERT_TRUE(ckpt::write_safetensors(*files_, path, arena.state_views(arena.bytes())).ok());
  const auto file = ckpt::SafetensorsFile::open(*files_, path);
  ASSERT_TRUE(file.ok()) << file.error().message();
  Arena other = this->arena();
  ASSERT_TRUE(other.load_state(*file).ok());
  const auto damaged = other.counters().replaced.damaged();
  EXPECT_EQ(std::vector<uint64_t>(damaged.begin(), damaged.end()), (std::vector<uint64_t>{40, 7}));
  EXPECT_EQ(hash64(&other.counters(), sizeof(Counters)),
            hash64(&arena.counters(), sizeof(Counters)));
}

}  // namespace
}  // namespace muster::train
