#include "muster/copy/copy_sender.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/copy/copy_testing.h"

namespace muster::copy {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// A link so slow that the weights are never sent: their write ends only when it is stopped.
class SlowStore final : public store::ForwardingStore {
 public:
  SlowStore(std::unique_ptr<store::Store> inner, std::atomic<bool>& sending)
      : ForwardingStore(*inner), inner_(std::move(inner)), sending_(sending) {}
  Result<std::optional<std::string>> write_stoppable(std::string_view address,
                                                     std::span<const std::byte> bytes,
                                                     const store::WriteCondition& condition,
                                                     const std::stop_token& stop) override {
    if (!address.ends_with("model.safetensors")) return write(address, bytes, condition);
    sending_ = true;
    for (int i = 0; i < 20000 && !stop.stop_requested(); ++i) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(stop.stop_requested()) << "it was not stopped";
    return Error(ErrorKind::kInterrupted, "stopped");
  }

 private:
  const std::unique_ptr<store::Store> inner_;
  std::atomic<bool>& sending_;
};

class CopySenderTest : public CopyTest {
 protected:
  std::unique_ptr<CopySender> sender(const TestRun& run) { return sender(run, open()); }
  std::unique_ptr<CopySender> sender(const TestRun& run, std::unique_ptr<store::Store> store) {
    return std::make_unique<CopySender>(
        std::make_unique<store::RetryStore>(std::move(store), clock_, store::quick_retries()),
        *files_, run.options(to_), log_);
  }
  static Result<bool> wait(CopySender& sender, std::optional<Duration> limit = std::nullopt) {
    return sender.wait_until_sent(limit, [](const std::string&) {});
  }
  Log log_;
};
INSTANTIATE_TEST_SUITE_P(In, CopySenderTest, testing::Values("file", "minio"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(CopySenderTest, SendsBehindAndIsWaitedForAtTheEnd) {
  auto run = make_run("run");
  const auto copy = sender(run);
  copy->begin(0, 0);
  ASSERT_TRUE(copy->wait_until_claimed().ok());
  for (int64_t step = 100; step <= 500; step += 100) {
    run.write(step);
    copy->changed();
  }
  ASSERT_TRUE(wait(*copy).ok());
  EXPECT_EQ(copy->take_notice(), std::nullopt);
  EXPECT_EQ(fetched_step("there"), 500);
  copy->end();
  run.write(600);
  copy->changed();
  ASSERT_TRUE(wait(*copy).ok());
  EXPECT_EQ(fetched_step("later"), 500);
}

TEST_P(CopySenderTest, WhatWasNotSentBeforeIsSentAtTheBeginning) {
  auto run = make_run("run");
  run.write(100);
  const auto copy = sender(run);
  copy->begin(0, 100);
  ASSERT_TRUE(wait(*copy).ok());
  EXPECT_EQ(fetched_step("there"), 100);
}

TEST_P(CopySenderTest, OneThatIsTakenOverSaysSoOnceAndStops) {
  auto run = make_run("run");
  const auto first = sender(run);
  first->begin(3, 0);
  run.write(100, 3);
  first->changed();
  ASSERT_TRUE(wait(*first).ok());
  EXPECT_EQ(fetched_step("other"), 100);
  auto other = make_run("other");
  const auto second = sender(other);
  second->begin(4, 100);
  ASSERT_TRUE(second->wait_until_claimed().ok());

  run.write(200, 3);
  first->changed();
  ASSERT_TRUE(wait(*first).ok());
  const auto notice = first->take_notice();
  ASSERT_TRUE(notice);
  EXPECT_THAT(*notice, HasSubstr("has taken over the copy in " + to_));
  EXPECT_EQ(first->take_notice(), std::nullopt);
  other.write(300, 4);
  second->changed();
  ASSERT_TRUE(wait(*second).ok());
  EXPECT_EQ(fetched_step("there"), 300);
  // It records again: with a newer roster it gets the claim.
  first->begin(5, 300);
  ASSERT_TRUE(first->wait_until_claimed().ok());
}

TEST_P(CopySenderTest, AWrongPlaceIsToldAtOnce) {
  auto run = make_run("run");
  auto another = make_run("another");
  ASSERT_TRUE(writer(another).claim(0, 0).ok());
  const auto copy = sender(run);
  copy->begin(0, 0);
  const auto claimed = copy->wait_until_claimed();
  ASSERT_FALSE(claimed.ok());
  EXPECT_THAT(claimed.error().message(), HasSubstr("the copy of another run"));
  EXPECT_THAT(wait(*copy).error().message(), HasSubstr("the copy of another run"));
}

TEST_P(CopySenderTest, ItsEndDoesNotWaitForAWriteThatIsUnderWay) {
  auto run = make_run("run");
  run.write(100);
  std::atomic<bool> sending{false};
  auto copy = sender(run, std::make_unique<SlowStore>(open(), sending));
  copy->begin(0, 100);
  while (!sending) std::this_thread::sleep_for(1ms);
  copy.reset();
  EXPECT_EQ(fetched_step("there"), -1);
}

TEST_P(CopySenderTest, TheWaitForTheClaimCanBeEnded) {
  if (!server_) GTEST_SKIP() << "a directory is not away";
  server_->kill();
  auto run = make_run("run");
  const auto copy = sender(run);
  copy->begin(0, 0);
  int looks = 0;
  const auto ended = copy->wait_until_claimed([&] { return ++looks < 3; });
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().kind(), ErrorKind::kInterrupted);
}

TEST_P(CopySenderTest, WaitsForAServerThatIsAway) {
  if (!server_) GTEST_SKIP() << "a directory is not away";
  auto run = make_run("run");
  const auto copy = sender(run);
  copy->begin(0, 0);
  ASSERT_TRUE(copy->wait_until_claimed().ok());
  server_->kill();
  run.write(100);
  copy->changed();
  std::string problem;
  const auto late = copy->wait_until_sent(
      500ms, [&](const std::string& text) { problem = text.empty() ? problem : text; });
  ASSERT_TRUE(late.ok()) << late.error().message();
  EXPECT_FALSE(*late);
  EXPECT_THAT(problem, HasSubstr("cannot be reached"));
  server_->start();
  ASSERT_TRUE(wait(*copy).ok());
  EXPECT_EQ(fetched_step("there"), 100);
}

}  // namespace
}  // namespace muster::copy
