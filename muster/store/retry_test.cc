#include "muster/store/retry.h"

#include <atomic>
#include <future>
#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/check.h"
#include "muster/store/store_testing.h"

namespace muster::store {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr const char* kName = "http://server/x";

// A server of one object, whose behaviour a test sets.
class FakeStore final : public Store {
 public:
  // What request number `i`, from 0, does before it answers; an error is its answer.
  std::function<Status(int i, const std::stop_token& stop)> behave;
  std::string contents = "0123456789";
  std::string version = "1";
  int pages = 1;         // requests that a list takes
  bool deleted = false;  // there is no object
  std::atomic<int> requests{0};

  Result<std::vector<Object>> list(std::string_view address) override {
    return list_stoppable(address, {});
  }
  Result<std::vector<Object>> list_stoppable(std::string_view address,
                                             const std::stop_token& stop) override {
    MUSTER_RETURN_IF_ERROR(enter(stop));
    if (deleted) return Error(ErrorKind::kData, "there is no object '{}'", address);
    return std::vector{
        Object{.name = std::string(address), .size = contents.size(), .version = version}};
  }
  Result<std::vector<Object>> list_in_requests(std::string_view address, const MakeRequest& make,
                                               const std::stop_token& stop) override {
    std::vector<Object> found;
    for (int page = 0; page < pages; ++page) {
      MUSTER_TRY(found, answer_of(make, [&] { return list_stoppable(address, stop); }));
    }
    return found;
  }
  Status read(const Object& object, uint64_t offset, std::span<std::byte> into) override {
    return read_stoppable(object, offset, into, {});
  }
  Status read_stoppable(const Object&, uint64_t offset, std::span<std::byte> into,
                        const std::stop_token& stop) override {
    std::ranges::fill(into, std::byte{'!'});  // what a request that fails leaves
    MUSTER_RETURN_IF_ERROR(enter(stop));
    if (deleted) return Error(ErrorKind::kData, "there is no object '{}'", kName);
    const auto bytes = std::as_bytes(std::span(contents)).subspan(offset, into.size());
    std::ranges::copy(bytes, into.begin());
    return {};
  }
  Result<std::optional<std::string>> write(std::string_view, std::span<const std::byte> bytes,
                                           const WriteCondition& condition) override {
    return write_stoppable({}, bytes, condition, {});
  }
  Result<std::optional<std::string>> write_stoppable(std::string_view,
                                                     std::span<const std::byte> bytes,
                                                     const WriteCondition& condition,
                                                     const std::stop_token& stop) override {
    if (condition.kind == WriteCondition::Kind::kIfVersion &&
        (deleted || condition.version != version)) {
      return std::optional<std::string>();
    }
    contents.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    version += "1";
    // The server has written; the answer may be lost.
    MUSTER_RETURN_IF_ERROR(enter(stop));
    return std::optional(version);
  }
  Status remove(std::string_view address) override { return remove_stoppable(address, {}); }
  Status remove_stoppable(std::string_view, const std::stop_token& stop) override {
    return enter(stop);
  }

 private:
  Status enter(const std::stop_token& stop) {
    const int i = requests++;
    return behave ? behave(i, stop) : Status();
  }
};

Error broken() { return Error(ErrorKind::kIo, "the connection broke"); }

// Blocks until stopped; aborts the test after 20 s.
Status hang(const std::stop_token& stop) {
  for (int i = 0; i < 20000 && !stop.stop_requested(); ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  MUSTER_CHECK(stop.stop_requested(), "a request that hangs was never stopped");
  return Error(ErrorKind::kInterrupted, "stopped");
}

// For tests that count requests: none is sent twice because a thread was late.
RetryOptions without_hedges(RetryOptions options) {
  options.hedges = 0;
  return options;
}

class RetryTest : public testing::Test {
 protected:
  RetryStore& make(RetryOptions options = quick()) {
    auto fake = std::make_unique<FakeStore>();
    fake_ = fake.get();
    store_.emplace(std::move(fake), clock_, options);
    return *store_;
  }
  static RetryOptions quick() {
    RetryOptions options;
    options.backoff = {.first = milliseconds(1), .most = milliseconds(4), .shared_from = 3};
    options.hedge = {.factor = 2,
                     .least = milliseconds(5),
                     .unknown_small = milliseconds(20),
                     .unknown_large = milliseconds(20),
                     .small = 1};
    options.seed = 1;
    return options;
  }

  Object object_{.name = kName, .size = 10, .version = "1"};
  SystemClock clock_;
  FakeStore* fake_ = nullptr;
  std::optional<RetryStore> store_;
};

TEST_F(RetryTest, TriesAgainUntilTheServerIsBack) {
  auto& store = make(without_hedges(quick()));
  fake_->behave = [](int i, const auto&) { return i < 30 ? Status(broken()) : Status(); };
  EXPECT_EQ(*read_text(store, object_, 2, 3), "234");
  EXPECT_EQ(fake_->requests, 31);
  EXPECT_EQ(store.counters().retries, 30U);
  EXPECT_EQ(store.counters().reads, 1U);
  EXPECT_EQ(store.counters().bytes, 3U);
}

// After an outage the next attempts are spread over seconds; who has the luck of the first one lets
// the others try too.
TEST_F(RetryTest, TheFirstThatSucceedsEndsTheWaitingOfAll) {
  auto options = quick();
  options.backoff = {.first = milliseconds(50), .most = std::chrono::seconds(2), .shared_from = 3};
  options.hedges = 0;
  auto& store = make(options);
  std::atomic<bool> back = false;
  std::atomic<int64_t> first_success{0};  // milliseconds
  const auto now = [] {
    return std::chrono::duration_cast<milliseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  fake_->behave = [&](int, const auto&) {
    if (!back) return Status(broken());
    int64_t none = 0;
    first_success.compare_exchange_strong(none, now());
    return Status();
  };
  std::vector<std::future<int64_t>> readers;
  for (int i = 0; i < 6; ++i) {
    readers.push_back(std::async(std::launch::async, [&] {
      EXPECT_EQ(*read_text(store, object_, 2, 3), "234");
      return now();
    }));
  }
  std::this_thread::sleep_for(milliseconds(2500));
  back = true;
  int64_t last = 0;
  for (auto& reader : readers) last = std::max(last, reader.get());
  EXPECT_LT(last - first_success, 700) << "spread over up to 2 s more";
}

TEST_F(RetryTest, ReturnsOtherErrorsAtOnce) {
  auto& store = make(without_hedges(quick()));
  fake_->behave = [](int, const auto&) -> Status { return Error(ErrorKind::kData, "is gone"); };
  const auto read = read_text(store, object_, 0, 1);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().kind(), ErrorKind::kData);
  EXPECT_EQ(fake_->requests, 1);
  EXPECT_EQ(store.list(kName).error().kind(), ErrorKind::kData);
}

TEST_F(RetryTest, AListGivesUp) {
  auto options = without_hedges(quick());
  options.list_timeout = milliseconds(30);
  auto& store = make(options);
  fake_->behave = [](int, const auto&) -> Status { return broken(); };
  const auto listed = store.list(kName);
  ASSERT_FALSE(listed.ok());
  EXPECT_EQ(listed.error().kind(), ErrorKind::kIo);
  EXPECT_THAT(listed.error().message(), HasSubstr("gave up after"));
}

// The limit is that of each page: 200 s in all, and the pages before the failure are not asked for
// again.
TEST_F(RetryTest, AListThatTakesLongOutlastsAFailure) {
  FakeClock clock;
  auto fake = std::make_unique<FakeStore>();
  fake->pages = 5;
  fake->behave = [&](int i, const auto&) {
    clock.advance(std::chrono::seconds(40));
    return i == 3 ? Status(broken()) : Status();
  };
  auto& requests = fake->requests;
  auto options = without_hedges(quick());
  options.list_timeout = std::chrono::seconds(60);
  RetryStore store(std::move(fake), clock, options);
  const auto listed = store.list(kName);
  ASSERT_TRUE(listed.ok()) << listed.error().message();
  EXPECT_EQ(listed->size(), 1U);
  EXPECT_EQ(requests, 6);
  EXPECT_EQ(store.counters().retries, 1U);
}

TEST_F(RetryTest, StopEndsAllWaitingAndTheProblemIsKnown) {
  auto options = quick();
  options.backoff = {
      .first = std::chrono::hours(1), .most = std::chrono::hours(1), .shared_from = 3};
  auto& store = make(options);
  fake_->behave = [](int i, const std::stop_token& stop) {
    return i == 0 ? hang(stop) : Status(broken());
  };
  const auto read = [&] { return read_text(store, object_, 0, 1); };
  auto hanging = std::async(std::launch::async, read);
  while (fake_->requests < 1) std::this_thread::yield();
  auto sleeping = std::async(std::launch::async, read);
  while (store.counters().retries < 1) std::this_thread::yield();
  EXPECT_EQ(store.problem(), "the connection broke");
  store.stop();
  EXPECT_EQ(hanging.get().error().kind(), ErrorKind::kInterrupted);
  EXPECT_EQ(sleeping.get().error().kind(), ErrorKind::kInterrupted);
  EXPECT_EQ(read().error().kind(), ErrorKind::kInterrupted);
}

TEST_F(RetryTest, OneReadCanBeStoppedAlone) {
  auto& store = make(without_hedges(quick()));
  fake_->behave = [](int i, const std::stop_token& stop) { return i == 0 ? hang(stop) : Status(); };
  std::stop_source stop;
  auto reading = std::async(std::launch::async, [&] {
    std::byte byte{};
    return store.read_stoppable(object_, 0, {&byte, 1}, stop.get_token());
  });
  while (fake_->requests < 1) std::this_thread::yield();
  stop.request_stop();
  EXPECT_EQ(reading.get().error().kind(), ErrorKind::kInterrupted);
  EXPECT_TRUE(read_text(store, object_, 0, 1).ok());
}

TEST_F(RetryTest, AListCanBeStopped) {
  auto options = quick();
  options.backoff = {
      .first = std::chrono::hours(1), .most = std::chrono::hours(1), .shared_from = 3};
  options.list_timeout = std::chrono::hours(2);
  auto& store = make(options);
  fake_->behave = [](int i, const std::stop_token& stop) {
    return i == 0 ? hang(stop) : Status(broken());
  };
  // In a request that hangs, and between two requests.
  for (const int requests : {1, 2}) {
    std::stop_source stop;
    auto listing = std::async(std::launch::async,
                              [&] { return store.list_stoppable(kName, stop.get_token()); });
    while (fake_->requests < requests) std::this_thread::yield();
    stop.request_stop();
    EXPECT_EQ(listing.get().error().kind(), ErrorKind::kInterrupted);
  }
}

TEST_F(RetryTest, ASecondRequestAnswersForOneThatHangs) {
  auto& store = make();
  fake_->behave = [](int i, const std::stop_token& stop) { return i == 0 ? hang(stop) : Status(); };
  EXPECT_EQ(*read_text(store, object_, 0, 10), "0123456789");
  const auto counters = store.counters();
  EXPECT_EQ(counters.hedges, 1U);
  EXPECT_EQ(counters.hedges_won, 1U);
  EXPECT_EQ(counters.retries, 0U);
}

TEST_F(RetryTest, TheFirstAnswerCountsAndEndsTheSecondRequest) {
  auto& store = make();
  std::promise<void> second_ended;
  fake_->behave = [&](int i, const std::stop_token& stop) -> Status {
    if (i == 0) {
      while (fake_->requests < 2) std::this_thread::yield();
      return {};
    }
    auto status = hang(stop);
    second_ended.set_value();
    return status;
  };
  EXPECT_EQ(*read_text(store, object_, 0, 10), "0123456789");
  second_ended.get_future().wait();
  EXPECT_EQ(store.counters().hedges, 1U);
  EXPECT_EQ(store.counters().hedges_won, 0U);
}

TEST_F(RetryTest, WhenTheFirstFailsTheSecondIsWaitedFor) {
  auto& store = make();
  fake_->behave = [&](int i, const std::stop_token&) -> Status {
    if (i == 0) {
      while (fake_->requests < 2) std::this_thread::yield();
      return broken();
    }
    std::this_thread::sleep_for(milliseconds(10));
    return {};
  };
  EXPECT_EQ(*read_text(store, object_, 0, 10), "0123456789");
  EXPECT_EQ(store.counters().hedges_won, 1U);
  EXPECT_EQ(store.counters().retries, 0U);
}

TEST_F(RetryTest, WhenBothFailItTriesAgain) {
  auto& store = make();
  fake_->behave = [&](int i, const std::stop_token&) -> Status {
    if (i == 0) {
      while (fake_->requests < 2) std::this_thread::yield();
    }
    return i < 2 ? Status(broken()) : Status();
  };
  EXPECT_EQ(*read_text(store, object_, 0, 10), "0123456789");
  EXPECT_EQ(store.counters().retries, 1U);
}

TEST_F(RetryTest, LocalFilesAreNotAskedTwice) {
  auto& store = make();
  object_.name = "/data/x";
  fake_->behave = [](int, const auto&) {
    std::this_thread::sleep_for(milliseconds(60));
    return Status();
  };
  EXPECT_TRUE(read_text(store, object_, 0, 1).ok());
  EXPECT_EQ(fake_->requests, 1);
}

TEST_F(RetryTest, AWriteWhoseAnswerWasLostHasSucceeded) {
  auto& store = make(without_hedges(quick()));
  fake_->behave = [](int i, const auto&) { return i == 0 ? Status(broken()) : Status(); };
  const auto written = write_text(store, kName, "new", WriteCondition::if_version("1"));
  ASSERT_TRUE(written.ok());
  ASSERT_TRUE(written->has_value());
  EXPECT_EQ(**written, fake_->version);
  EXPECT_EQ(fake_->contents, "new");
}

TEST_F(RetryTest, AWriteThatAnotherOneWonHasNot) {
  auto& store = make(without_hedges(quick()));
  EXPECT_EQ(*write_text(store, kName, "new", WriteCondition::if_version("0")), std::nullopt);
  // Another process writes between the lost answer and the second attempt.
  fake_->behave = [&](int i, const auto&) -> Status {
    if (i > 0) return {};
    fake_->contents = "other";
    fake_->version = "77";
    return broken();
  };
  EXPECT_EQ(*write_text(store, kName, "new", WriteCondition::if_version("1")), std::nullopt);
  EXPECT_EQ(fake_->contents, "other");
}

// Before it is looked for, and between that and reading it.
TEST_F(RetryTest, AWriteWhoseObjectWasDeletedMeanwhileHasNotSucceeded) {
  for (const int deleted_at : {0, 2}) {
    auto& store = make(without_hedges(quick()));
    fake_->behave = [&](int i, const auto&) -> Status {
      if (i == deleted_at) fake_->deleted = true;
      return i == 0 ? Status(broken()) : Status();
    };
    const auto written = write_text(store, kName, "new", WriteCondition::if_version("1"));
    ASSERT_TRUE(written.ok()) << written.error().message();
    EXPECT_EQ(*written, std::nullopt);
  }
}

// Whether the first attempt has written is not known then, and "no" would be a guess.
TEST_F(RetryTest, AWriteWhoseObjectMayNotBeReadIsAnError) {
  for (const int denied_at : {1, 2}) {  // when it is looked for, when it is read
    auto& store = make(without_hedges(quick()));
    fake_->behave = [&](int i, const auto&) -> Status {
      if (i == denied_at) return Error(ErrorKind::kMachine, "denied");
      return i == 0 ? Status(broken()) : Status();
    };
    const auto written = write_text(store, kName, "new", WriteCondition::if_version("1"));
    ASSERT_FALSE(written.ok());
    EXPECT_EQ(written.error().kind(), ErrorKind::kMachine);
  }
}

// A PUT of gigabytes, or a server that does not answer, must not hold up the end of a process.
TEST_F(RetryTest, StopEndsAWriteAndARemovalThatAreUnderWay) {
  for (const bool removes : {false, true}) {
    auto& store = make();
    fake_->behave = [](int, const std::stop_token& stop) { return hang(stop); };
    auto ended = std::async(std::launch::async, [&]() -> Status {
      if (removes) return store.remove(kName);
      const auto written = write_text(store, kName, "new", WriteCondition::always());
      return written.ok() ? Status() : Status(written.error());
    });
    while (fake_->requests == 0) std::this_thread::sleep_for(milliseconds(1));
    store.stop();
    EXPECT_EQ(ended.get().error().kind(), ErrorKind::kInterrupted);
  }
}

// Many readers, every fifth request fails, and every twentieth hangs until it is stopped or its
// time is over: the second request may hang too.
TEST_F(RetryTest, ManyReadersGetTheRightBytes) {
  auto& store = make();
  fake_->contents.assign(1000, 'x');
  for (size_t i = 0; i < 1000; ++i) fake_->contents[i] = static_cast<char>('a' + i % 26);
  fake_->behave = [](int i, const std::stop_token& stop) -> Status {
    if (i % 20 == 7) {
      for (int ms = 0; ms < 100 && !stop.stop_requested(); ++ms) {
        std::this_thread::sleep_for(milliseconds(1));
      }
      return broken();
    }
    return i % 5 == 3 ? Status(broken()) : Status();
  };
  std::vector<std::thread> readers;
  std::atomic<int> wrong{0};
  for (size_t r = 0; r < 4; ++r) {
    readers.emplace_back([&, r] {
      for (size_t i = 0; i < 50; ++i) {
        const size_t offset = (r * 211 + i * 17) % 900;
        const auto text = read_text(store, object_, offset, 100);
        if (!text.ok() || *text != fake_->contents.substr(offset, 100)) ++wrong;
      }
    });
  }
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(store.counters().reads, 200U);
  EXPECT_GT(store.counters().hedges_won, 0U);
}

}  // namespace
}  // namespace muster::store
