#include "muster/ckpt/snapshot_writer.h"

#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/fault_injection_testing.h"
#include "muster/base/forwarding_file_system_testing.h"
#include "muster/ckpt/snapshot_testing.h"

namespace muster::ckpt {
namespace {

using testing::HasSubstr;

constexpr const char* kDir = "run/checkpoints";

void fill(SnapshotBuffer& buffer, const TestState& state) {
  for (const auto& t : state.model()) buffer.add_model(t.name, t.dtype, t.shape, t.data);
  for (const auto& t : state.state()) buffer.add_state(t.name, t.dtype, t.shape, t.data);
}

// A disk whose first write waits until the test lets it go on.
class SlowFileSystem final : public ForwardingFileSystem {
 public:
  explicit SlowFileSystem(FileSystem& disk) : ForwardingFileSystem(disk) {}

  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override {
    creating_ = true;
    creating_.notify_all();
    open_.wait(false);
    return ForwardingFileSystem::create(path);
  }
  void wait_until_creating() { creating_.wait(false); }
  void let_go() {
    open_ = true;
    open_.notify_all();
  }

 private:
  std::atomic<bool> creating_{false};
  std::atomic<bool> open_{false};
};

TEST(SnapshotWriter, WritesTheStateAsItWasAtSubmit) {
  FaultInjectionFileSystem disk;
  SlowFileSystem fs(disk);
  SnapshotStore store(fs, kDir, 3, true);
  Log log;
  SnapshotWriter writer(store, log);
  auto buffer = writer.begin();
  ASSERT_TRUE(buffer.ok());
  std::vector<float> weights = {1, 2, 3};
  (*buffer)->add_model("w", DType::F32, {3}, std::as_bytes(std::span(weights)));
  writer.submit({.step = 100, .roster = 2, .best = true, .meta = {{"samples", 5}}});
  fs.wait_until_creating();
  weights = {7, 7, 7};  // training goes on while the disk is slow
  EXPECT_FALSE(store.load_newest()->has_value());
  fs.let_go();
  ASSERT_TRUE(writer.wait().ok());

  const auto loaded = store.load_newest();
  ASSERT_TRUE(loaded.ok() && loaded->has_value());
  EXPECT_EQ((*loaded)->step, 100);
  EXPECT_EQ((*loaded)->roster, 2u);
  EXPECT_TRUE((*loaded)->best);
  EXPECT_EQ((*loaded)->meta.at("samples"), 5);
  const std::vector<float> before = {1, 2, 3};
  const auto* read = (*loaded)->model.find("w");
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(std::memcmp(read->data.data(), before.data(), read->data.size()), 0);
}

TEST(SnapshotWriter, AtMostOneIsInFlightAndAllAreWritten) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 100, true);
  Log log;
  {
    SnapshotWriter writer(store, log);
    for (int64_t step = 0; step < 20; ++step) {
      auto buffer = writer.begin();
      ASSERT_TRUE(buffer.ok());
      fill(**buffer, TestState(step, 16 + 100 * step));  // growing, to move the memory
      writer.submit({.step = step});
    }
  }  // the destructor waits for the last
  for (int64_t step = 0; step < 20; ++step) {
    const auto loaded = store.load(step);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message();
    EXPECT_TRUE(TestState(step, 16 + 100 * step).equals(*loaded));
  }
}

TEST(SnapshotWriter, AnErrorComesOutAtTheNextCallOnceAndTheNextWriteWorks) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 3, true);
  Log log;
  SnapshotWriter writer(store, log);
  fs.fail_at(5, Fault::kDiskFull);
  fill(**writer.begin(), TestState(1));
  writer.submit({.step = 1});
  const auto refused = writer.begin();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("snapshot of step 1 was not written"));
  EXPECT_TRUE(writer.wait().ok()) << "told once";

  fs.restart(CrashLoss::kNothing);
  auto buffer = writer.begin();
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ((*buffer)->bytes(), 0u);
  fill(**buffer, TestState(2));
  writer.submit({.step = 2});
  EXPECT_TRUE(writer.wait().ok());
  EXPECT_TRUE(TestState(2).equals(**store.load_newest()));
}

TEST(SnapshotWriter, LeavesWithoutEverHavingWritten) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 3, true);
  Log log;
  const SnapshotWriter writer(store, log);
}

TEST(SnapshotBuffer, KeepsItsMemoryAndTakesEmptyTensors) {
  SnapshotBuffer buffer;
  buffer.reserve(1000);
  buffer.add_model("empty", DType::F32, {0}, {});
  const std::vector<double> ten(10, 1.5);
  buffer.add_state("ten", DType::F64, {10}, std::as_bytes(std::span(ten)));
  const auto* where = buffer.state()[0].data.data();
  buffer.clear();
  EXPECT_EQ(buffer.bytes(), 0u);
  EXPECT_TRUE(buffer.model().empty());
  buffer.add_state("ten", DType::F64, {10}, std::as_bytes(std::span(ten)));
  EXPECT_EQ(buffer.state()[0].data.data(), where);
}

}  // namespace
}  // namespace muster::ckpt
