// The store against a disk that fails at every single operation, one after another.
#include <stdlib.h>

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/fault_injection_testing.h"
#include "muster/ckpt/snapshot.h"
#include "muster/ckpt/snapshot_testing.h"

namespace muster::ckpt {
namespace {

using testing::HasSubstr;

constexpr const char* kDir = "run/checkpoints";

struct Story {
  const char* name;
  int keep;
  bool best;      // the new one is the best, so the old best goes
  int64_t after;  // the step that is written while the disk fails; before are 100 and 200
};

class SnapshotCrashTest : public testing::TestWithParam<Story> {
 protected:
  // A run directory that is already durable, with two snapshots in it; the first is the best.
  static void prepare(FaultInjectionFileSystem& fs) {
    ASSERT_TRUE(fs.create_directories("run").ok());
    ASSERT_TRUE(fs.sync_directory("").ok());
    SnapshotStore store(fs, kDir, GetParam().keep, true);
    for (int64_t step : {100, 200}) {
      const TestState state(step);
      auto view = state.view();
      view.best = step == 100;
      ASSERT_TRUE(store.write(view).ok());
    }
    fs.restart(CrashLoss::kNothing);
  }

  static Status write_next(FileSystem& fs) {
    SnapshotStore store(fs, kDir, GetParam().keep, true);
    const TestState state(GetParam().after);
    auto view = state.view();
    view.best = GetParam().best;
    return store.write(view);
  }

  static int64_t operations_of_a_write() {
    FaultInjectionFileSystem fs;
    prepare(fs);
    EXPECT_TRUE(write_next(fs).ok());
    return fs.operations();
  }

  // Whatever happened: the newest is the one before or the new one, whole; the best is there; and
  // the next write succeeds and clears away what the fault left.
  static void expect_sound(FaultInjectionFileSystem& fs, bool new_one_must_be_there) {
    {
      SnapshotStore store(fs, kDir, GetParam().keep, true);
      std::vector<std::string> notes;
      const auto newest = store.load_newest(&notes);
      ASSERT_TRUE(newest.ok()) << newest.error().message();
      ASSERT_TRUE(newest->has_value());
      EXPECT_THAT(notes, testing::IsEmpty()) << "a crash leaves nothing that looks damaged";
      const int64_t step = (*newest)->step;
      EXPECT_TRUE(step == GetParam().after || (step == 200 && !new_one_must_be_there)) << step;
      EXPECT_TRUE(TestState(step).equals(**newest));
      const auto best = store.load_best();
      ASSERT_TRUE(best.ok()) << best.error().message();
      ASSERT_TRUE(best->has_value());
      EXPECT_EQ((*best)->step, GetParam().best && step == GetParam().after ? step : 100);
    }
    SnapshotStore store(fs, kDir, 1, false);
    ASSERT_TRUE(store.write(TestState(900).view()).ok());
    EXPECT_THAT(*fs.list(kDir), testing::ElementsAre("step-000000900"));
    EXPECT_TRUE(TestState(900).equals(**store.load_newest()));
  }
};

TEST_P(SnapshotCrashTest, ACrashAtAnyOperationLeavesTheOldOrTheNew) {
  const int64_t operations = operations_of_a_write();
  ASSERT_GT(operations, 20);
  for (int64_t n = 0; n <= operations; ++n) {
    for (const auto loss : {CrashLoss::kNothing, CrashLoss::kUnsynced, CrashLoss::kSome}) {
      for (uint64_t seed = 0; seed < (loss == CrashLoss::kSome ? 8 : 1); ++seed) {
        SCOPED_TRACE(testing::Message()
                     << "crash at operation " << n << " of " << operations << ", loss "
                     << static_cast<int>(loss) << ", seed " << seed);
        FaultInjectionFileSystem fs;
        prepare(fs);
        fs.fail_at(n, Fault::kCrash);
        const bool durable = write_next(fs).ok();
        fs.restart(loss, seed);
        expect_sound(fs, durable);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(SnapshotCrashTest, OneFailedOperationIsAnErrorAndNoHarm) {
  const int64_t operations = operations_of_a_write();
  for (int64_t n = 0; n < operations; ++n) {
    SCOPED_TRACE(testing::Message() << "failure at operation " << n);
    FaultInjectionFileSystem fs;
    prepare(fs);
    fs.fail_at(n, Fault::kOnce);
    const Status written = write_next(fs);
    if (!written.ok()) {
      EXPECT_THAT(written.error().message(), HasSubstr("Input/output error"));
    }
    fs.restart(CrashLoss::kNothing);
    expect_sound(fs, written.ok());
  }
}

TEST_P(SnapshotCrashTest, AFullDiskIsASentenceAndTheOthersAreIntact) {
  const int64_t operations = operations_of_a_write();
  for (int64_t n = 0; n < operations; ++n) {
    SCOPED_TRACE(testing::Message() << "full from operation " << n);
    FaultInjectionFileSystem fs;
    prepare(fs);
    fs.fail_at(n, Fault::kDiskFull);
    const Status written = write_next(fs);
    if (!written.ok()) {
      EXPECT_EQ(written.error().kind(), ErrorKind::kIo);
      EXPECT_THAT(written.error().message(), HasSubstr("No space left"));
      EXPECT_THAT(written.error().message(),
                  HasSubstr(fmt::format("snapshot of step {}", GetParam().after)));
      EXPECT_THAT(*fs.list(kDir), Each(Not(HasSubstr(".tmp"))));
    }
    fs.restart(CrashLoss::kUnsynced);
    expect_sound(fs, written.ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Stories, SnapshotCrashTest,
                         testing::Values(Story{"KeepOne", 1, false, 300},
                                         Story{"KeepTwo", 2, false, 300},
                                         Story{"NewBest", 1, true, 300},
                                         Story{"SameStepAgain", 2, false, 200}),
                         [](const auto& info) { return info.param.name; });

// Once on the real disk, to see that the pretended one pretends well.
TEST(SnapshotOnDisk, WritesReplacesAndLoads) {
  std::string dir = (std::filesystem::temp_directory_path() / "muster-XXXXXX").string();
  ASSERT_NE(::mkdtemp(dir.data()), nullptr);
  const auto fs = posix_file_system();
  SnapshotStore store(*fs, dir + "/run/checkpoints", 2, true);
  for (int64_t step : {1, 2, 3, 3}) ASSERT_TRUE(store.write(TestState(step).view()).ok());
  EXPECT_TRUE(TestState(3).equals(**store.load_newest()));
  EXPECT_THAT(*fs->list(store.directory()),
              testing::ElementsAre("step-000000002", "step-000000003"));
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace muster::ckpt
