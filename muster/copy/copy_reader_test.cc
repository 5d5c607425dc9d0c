#include "muster/copy/copy_reader.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/copy/copy_testing.h"

namespace muster::copy {
namespace {

using testing::HasSubstr;
using Outcome = CopyWriter::Outcome;

class CopyReaderTest : public CopyTest {
 protected:
  std::unique_ptr<CopyReader> reader(const TestRun& run) {
    return std::make_unique<CopyReader>(
        std::make_unique<store::RetryStore>(open(), clock_, store::quick_retries()), *files_,
        run.options(to_), [this] { ++parts_; });
  }
  CopyLook look(const TestRun& run) {
    const auto seen = reader(run)->look();
    EXPECT_TRUE(seen.ok()) << seen.error().message();
    return seen.ok() ? *seen : CopyLook();
  }
  // Claims the copy and sends what the run has.
  void send(TestRun& run, uint64_t roster) {
    auto copy = writer(run);
    const auto claimed = copy.claim(roster, run.newest() < 0 ? 0 : run.newest(),
                                    [](const std::string&) -> Status { return {}; });
    ASSERT_TRUE(claimed.ok()) << claimed.error().message();
    ASSERT_EQ(*claimed, Outcome::kDone);
    const auto sent = copy.send();
    ASSERT_TRUE(sent.ok()) << sent.error().message();
  }
  // Makes it a directory that another host has made for the same run.
  void belong_to(const TestRun& other, const TestRun& run) {
    const auto id = read_run_id(*files_, other.directory());
    ASSERT_TRUE(id.ok());
    ASSERT_TRUE(write_run_id(*files_, run.directory(), {.run = id->run, .writer = ""}).ok());
  }
  static const ckpt::SnapshotInfo* find(const std::vector<ckpt::SnapshotInfo>& all, int64_t step) {
    for (const auto& each : all) {
      if (each.step == step) return &each;
    }
    return nullptr;
  }

  int parts_ = 0;
};
INSTANTIATE_TEST_SUITE_P(In, CopyReaderTest, testing::Values("file", "minio"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(CopyReaderTest, OneDirectoryIsCurrent) {
  auto first = make_run("first");
  EXPECT_FALSE(look(first).exists);
  EXPECT_TRUE(look(first).current);
  first.write(100, 5);
  send(first, 5);
  EXPECT_TRUE(look(first).exists);
  EXPECT_TRUE(look(first).current);

  auto second = make_run("second");
  belong_to(first, second);
  const auto seen = look(second);
  EXPECT_TRUE(seen.exists);
  EXPECT_FALSE(seen.current);
  ASSERT_NE(seen.find(100), nullptr);
  EXPECT_EQ(seen.find(200), nullptr);

  second.write(200, 6);
  send(second, 6);
  EXPECT_TRUE(look(second).current);
  // What the first one has, and the copy has not, does not count any more.
  first.write(150, 5);
  const auto behind = look(first);
  EXPECT_FALSE(behind.current);
  const auto local = first.store().list();
  ASSERT_TRUE(local.ok());
  EXPECT_TRUE(behind.has(*find(*local, 100)));
  EXPECT_FALSE(behind.has(*find(*local, 150)));
}

TEST_P(CopyReaderTest, ACheckpointIsFetchedInPlaceOfAnother) {
  auto first = make_run("first");
  first.write(100, 5);
  send(first, 5);
  auto second = make_run("second");
  belong_to(first, second);
  second.write(100, 4);  // of a past that was left
  const auto copy = reader(second);
  const auto seen = copy->look();
  ASSERT_TRUE(seen.ok()) << seen.error().message();
  const auto fetched = copy->fetch(*seen->find(100));
  ASSERT_TRUE(fetched.ok()) << fetched.error().message();
  EXPECT_GT(parts_, 0);
  const auto local = second.store().list();
  ASSERT_TRUE(local.ok());
  EXPECT_TRUE(seen->has(*find(*local, 100)));
  EXPECT_EQ(second.newest(), 100);
  parts_ = 0;
  EXPECT_TRUE(copy->fetch(*seen->find(100)).ok());
  EXPECT_EQ(parts_, 0);
}

TEST_P(CopyReaderTest, ADamagedCheckpointDoesNotKeepTheRunFromContinuing) {
  auto first = make_run("first");
  first.write(100, 5);
  first.write(200, 5);
  send(first, 5);
  auto second = make_run("second");
  belong_to(first, second);
  const auto copy = reader(second);
  const auto seen = copy->look();
  ASSERT_TRUE(seen.ok()) << seen.error().message();
  ASSERT_TRUE(store_->remove(address_in(to_, seen->find(200)->files.front().object)).ok());
  EXPECT_FALSE(copy->fetch(*seen->find(200)).ok());
  EXPECT_TRUE(copy->fetch(*seen->find(100)).ok());
  EXPECT_EQ(second.newest(), 100);
  const auto claimed = writer(second).claim(6, 100);
  ASSERT_TRUE(claimed.ok()) << claimed.error().message();
}

TEST_P(CopyReaderTest, ACheckpointThatMayNotBeReadIsNotPassedOver) {
  auto first = make_run("first");
  first.write(100, 5);
  first.write(200, 5);
  send(first, 5);
  auto second = make_run("second");
  belong_to(first, second);
  CopyReader denied(std::make_unique<store::RetryStore>(
                        std::make_unique<DenyingStore>(*store_, "step-000000200/state"), clock_,
                        store::quick_retries()),
                    *files_, second.options(to_), {});
  const auto seen = denied.look();
  ASSERT_TRUE(seen.ok()) << seen.error().message();
  const auto fetched = denied.fetch(*seen->find(200));
  ASSERT_FALSE(fetched.ok());
  EXPECT_EQ(fetched.error().kind(), ErrorKind::kMachine);
  EXPECT_EQ(read_run_id(*files_, second.directory())->passed_over, -1);
  // So the copy keeps it.
  EXPECT_FALSE(writer(second).claim(6, 100).ok());
}

TEST_P(CopyReaderTest, ADirectoryThatIsBehindTakesOverTheRollback) {
  auto first = make_run("first");
  first.write(100, 5);
  send(first, 5);
  auto second = make_run("second");
  belong_to(first, second);
  // It found the rollback itself, and nobody has claimed the copy since.
  ASSERT_TRUE(second.store().note_rollback({.roster = 6, .step = 50}).ok());
  (void)look(second);
  EXPECT_EQ(second.store().rollback()->roster, 6U);

  // Another one was found, and the copy knows of it.
  ASSERT_TRUE(first.store().roll_back({.roster = 7, .step = 100}).ok());
  send(first, 8);
  second.write(150, 7);
  (void)look(second);
  EXPECT_EQ(second.store().rollback()->roster, 7U);
  EXPECT_FALSE(second.store().load(150).ok());

  // A worker alone had the run for itself, and forgot it.
  ASSERT_TRUE(first.store().finish_rollback().ok());
  send(first, 9);
  (void)look(second);
  EXPECT_EQ(second.store().rollback()->roster, 0U);
}

TEST_P(CopyReaderTest, ACopyThatCannotBeReadIsAnErrorThatPasses) {
  auto run = make_run("run");
  class Closed final : public store::ForwardingStore {
   public:
    Closed(store::Store& inner, ErrorKind kind) : ForwardingStore(inner), kind_(kind) {}
    Result<std::vector<store::Object>> list(std::string_view) override {
      return Error(kind_, "forbidden");
    }

   private:
    const ErrorKind kind_;
  };
  for (const auto kind : {ErrorKind::kData, ErrorKind::kMachine}) {
    CopyReader copy(std::make_unique<store::RetryStore>(std::make_unique<Closed>(*store_, kind),
                                                        clock_, store::quick_retries()),
                    *files_, run.options(to_), {});
    const auto seen = copy.look();
    ASSERT_FALSE(seen.ok());
    EXPECT_EQ(seen.error().kind(), ErrorKind::kIo);
    EXPECT_THAT(seen.error().message(), HasSubstr("forbidden"));
    copy.stop();
    EXPECT_EQ(copy.look().error().kind(), ErrorKind::kInterrupted);
  }
}

}  // namespace
}  // namespace muster::copy
