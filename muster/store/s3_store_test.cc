// Against a real MinIO, which each test starts.
#include "muster/store/s3_store.h"

#include <atomic>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/store/http_store.h"
#include "muster/store/open.h"
#include "muster/store/retry.h"
#include "muster/store/server_testing.h"
#include "muster/store/store_testing.h"

namespace muster::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(S3PlaceTest, BucketsOfAwsAreHosts) {
  S3Settings settings;
  settings.region = "eu-west-1";
  EXPECT_EQ(place_of(settings, "b"),
            (BucketPlace{.root = "https://b.s3.eu-west-1.amazonaws.com", .base = "/"}));
  EXPECT_EQ(place_of(settings, "a.b"),
            (BucketPlace{.root = "https://s3.eu-west-1.amazonaws.com", .base = "/a.b/"}));
  settings.region = "cn-north-1";
  EXPECT_EQ(place_of(settings, "b").root, "https://b.s3.cn-north-1.amazonaws.com.cn");
  settings.endpoint = "http://h:9000";
  EXPECT_EQ(place_of(settings, "b"), (BucketPlace{.root = "http://h:9000", .base = "/b/"}));
}

TEST(S3RenewalTest, CredentialsThatHaveExpiredAreReadAgain) {
  if (const auto why = RangeServer::unavailable(); !why.empty()) GTEST_SKIP() << why;
  const RangeServer server;
  const SystemClock clock;
  auto object = HttpStore().list(server.url("/good"))->at(0);
  const std::string expected = *read_text(*open_store(), object, 10, 20);
  object.name = "s3://bucket/expiring";
  S3Settings settings;
  settings.endpoint = server.url("");
  settings.credentials = Credentials{.key_id = "OLD-KEY", .secret = "s", .session_token = "t"};
  S3Store without(settings, clock);
  EXPECT_EQ(read_text(without, object, 10, 20).error().kind(), ErrorKind::kData);
  EXPECT_THAT(without.list(object.name).error().message(), HasSubstr("ExpiredToken"));

  std::atomic<int> renewals = 0;
  const auto renew = [&]() -> Result<S3Settings> {
    if (++renewals == 1) return Error(ErrorKind::kJob, "the file is just being written");
    auto renewed = settings;
    renewed.credentials->key_id = "NEW-KEY";
    return renewed;
  };
  RetryOptions options;
  options.backoff.first = std::chrono::milliseconds(5);
  options.backoff.most = std::chrono::milliseconds(100);
  const auto open = [&] {
    renewals = 0;
    return std::make_unique<RetryStore>(
        std::make_unique<S3Store>(settings, clock, HttpOptions(), renew), clock, options);
  };
  const auto store = open();
  const auto read = read_text(*store, object, 10, 20);
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_EQ(*read, expected);
  EXPECT_EQ(renewals, 2);
  // Also when the object is looked up, with a request whose answer does not say why it is refused.
  const auto listed = open()->list(object.name);
  ASSERT_TRUE(listed.ok()) << listed.error().message();
  EXPECT_EQ(listed->at(0), object);
  EXPECT_EQ(renewals, 2);
}

// Against a server that refuses one key, with the code that is the object's name.
class S3RefusedKeyTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = RangeServer::unavailable(); !why.empty()) GTEST_SKIP() << why;
    server_ = std::make_unique<RangeServer>();
    object_ = HttpStore().list(server_->url("/good"))->at(0);
  }
  S3Settings settings(const std::string& key_id, const std::string& session) const {
    S3Settings settings;
    settings.endpoint = server_->url("");
    settings.credentials = Credentials{.key_id = key_id, .secret = "s", .session_token = session};
    return settings;
  }
  Result<std::string> read(Store& store, const std::string& code) {
    object_.name = "s3://bucket/" + code;
    return read_text(store, object_, 10, 20);
  }
  S3Store open(const std::string& session, S3Store::Renew renew) const {
    return S3Store(settings("OLD-KEY", session), clock_, HttpOptions(), std::move(renew));
  }

  FakeClock clock_{WallTime(std::chrono::seconds(1700000000))};
  std::unique_ptr<RangeServer> server_;
  Object object_;
};

TEST_F(S3RefusedKeyTest, ASessionThatTheServerForgotIsWaitedFor) {
  for (const char* code : {"InvalidAccessKeyId", "InvalidToken", "InvalidTokenId"}) {
    std::string key = "OLD-KEY";
    auto store = open("t", [&] { return Result<S3Settings>(settings(key, "t")); });
    auto waits = read(store, code);
    ASSERT_FALSE(waits.ok());
    EXPECT_EQ(waits.error().kind(), ErrorKind::kIo) << code;
    EXPECT_THAT(waits.error().message(), HasSubstr("the credentials have expired"));
    key = "NEW-KEY";
    clock_.advance(std::chrono::seconds(2));
    EXPECT_EQ(read(store, code).error().kind(), ErrorKind::kIo) << code;  // finds the new ones
    EXPECT_TRUE(read(store, code).ok()) << code;
    // Without a file, nothing would renew them.
    auto without = open("t", {});
    EXPECT_NE(read(without, code).error().kind(), ErrorKind::kIo) << code;
  }
}

TEST_F(S3RefusedKeyTest, AKeyThatIsWrongIsAnErrorUnlessItWasReplaced) {
  for (const char* code : {"InvalidAccessKeyId", "SignatureDoesNotMatch"}) {
    std::string key = "OLD-KEY";
    auto store = open("", [&] { return Result<S3Settings>(settings(key, "")); });
    auto wrong = read(store, code);
    ASSERT_FALSE(wrong.ok());
    EXPECT_EQ(wrong.error().kind(), ErrorKind::kMachine) << code;
    EXPECT_THAT(wrong.error().message(), HasSubstr("check the credentials"));
    key = "OLD-KEY-2";
    clock_.advance(std::chrono::seconds(2));
    EXPECT_EQ(read(store, code).error().kind(), ErrorKind::kIo) << code;  // finds another one
    clock_.advance(std::chrono::minutes(2));
    EXPECT_NE(read(store, code).error().kind(), ErrorKind::kIo) << code;  // which is wrong too
    key = "NEW-KEY";
    clock_.advance(std::chrono::seconds(2));
    EXPECT_EQ(read(store, code).error().kind(), ErrorKind::kIo) << code;
    EXPECT_TRUE(read(store, code).ok()) << code;
  }
}

TEST_F(S3RefusedKeyTest, AFileThatIsEmptyWhileItIsWrittenLeavesTheOldCredentials) {
  auto found = settings("OLD-KEY", "t");
  found.credentials.reset();
  auto store = open("t", [&] { return Result<S3Settings>(found); });
  for (int i = 0; i < 3; ++i) {
    // With no credentials the server would answer AccessDenied.
    EXPECT_EQ(read(store, "ExpiredToken").error().kind(), ErrorKind::kIo);
    clock_.advance(std::chrono::seconds(2));
  }
  found = settings("NEW-KEY", "t");
  EXPECT_EQ(read(store, "ExpiredToken").error().kind(), ErrorKind::kIo);
  EXPECT_TRUE(read(store, "ExpiredToken").ok());
}

TEST(S3ListTest, OnlyThePageThatFailedIsAskedForAgain) {
  if (const auto why = RangeServer::unavailable(); !why.empty()) GTEST_SKIP() << why;
  const RangeServer server;
  const SystemClock clock;
  S3Settings settings;
  settings.endpoint = server.url("");
  RetryStore store(std::make_unique<S3Store>(settings, clock), clock, quick_retries());
  const auto found = store.list("s3://paged/*");
  ASSERT_TRUE(found.ok()) << found.error().message();
  EXPECT_EQ(found->size(), 6U);
  EXPECT_EQ(server.post("/asked"), "0:2 1:2 2:2");
}

TEST(S3ListTest, AKeyOnTwoPagesIsListedOnce) {
  if (const auto why = RangeServer::unavailable(); !why.empty()) GTEST_SKIP() << why;
  const RangeServer server;
  const SystemClock clock;
  S3Settings settings;
  settings.endpoint = server.url("");
  RetryStore store(std::make_unique<S3Store>(settings, clock), clock, quick_retries());
  const auto found = store.list("s3://overlapping/*");
  ASSERT_TRUE(found.ok()) << found.error().message();
  std::vector<std::string> names;
  for (const auto& object : *found) names.push_back(object.name);
  EXPECT_THAT(names, ElementsAre("s3://overlapping/0.tar", "s3://overlapping/1.tar",
                                 "s3://overlapping/2.tar", "s3://overlapping/3.tar"));
}

class S3StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = MinioServer::unavailable(); !why.empty()) GTEST_SKIP() << why;
    server_ = std::make_unique<MinioServer>();
    store_ = std::make_unique<S3Store>(server_->settings(), clock_);
  }
  std::string put(const std::string& key, std::string_view text) {
    const auto written = write_text(*store_, MinioServer::url(key), text, WriteCondition::always());
    EXPECT_TRUE(written.ok()) << written.error().message();
    return written.ok() ? written->value_or("") : "";
  }
  Object only(const std::string& key) {
    auto found = store_->list(MinioServer::url(key));
    EXPECT_TRUE(found.ok()) << found.error().message();
    return found.ok() ? found->at(0) : Object{};
  }
  std::vector<std::string> keys(const std::string& pattern) {
    const auto found = store_->list(MinioServer::url(pattern));
    EXPECT_TRUE(found.ok()) << found.error().message();
    std::vector<std::string> out;
    if (!found.ok()) return out;
    for (const auto& object : *found) {
      EXPECT_EQ(object, only(object.name.substr(MinioServer::url("").size())));
      out.push_back(object.name.substr(MinioServer::url("").size()));
    }
    return out;
  }

  SystemClock clock_;
  std::unique_ptr<MinioServer> server_;
  std::unique_ptr<S3Store> store_;
};

TEST_F(S3StoreTest, ReadsRangesOfKeysWithAnyCharacters) {
  for (const std::string key : {"plain.tar", "dt=2024/hour=01/a b+c.csv", "q?a=1&b=2#x%20y",
                                "\xc3\xa4\xe2\x82\xac/~!$'()*,:;@[]{}\"<>^`|.bin"}) {
    const auto version = put(key, "0123456789");
    const auto object = Object{.name = MinioServer::url(key), .size = 10, .version = version};
    EXPECT_EQ(*read_text(*store_, object, 3, 4), "3456") << key;
    EXPECT_EQ(*read_text(*store_, object, 0, 10), "0123456789") << key;
  }
  // The characters are the same in a list.
  const auto found = store_->list(MinioServer::url("**"));
  ASSERT_TRUE(found.ok()) << found.error().message();
  ASSERT_EQ(found->size(), 4U);
  for (const auto& object : *found) EXPECT_EQ(*read_text(*store_, object, 9, 1), "9");
}

TEST_F(S3StoreTest, ListsByPatternOverPages) {
  for (const char* key :
       {"a/1.tar", "a/2.tar", "a/b/3.tar", "a/b/c/4.tar", "a/5.txt", "ab/6.tar", "a/.hidden.tar"}) {
    put(key, "x");
  }
  EXPECT_THAT(keys("a/*.tar"), ElementsAre("a/1.tar", "a/2.tar"));
  EXPECT_THAT(keys("a/**/*.tar"), ElementsAre("a/1.tar", "a/2.tar", "a/b/3.tar", "a/b/c/4.tar"));
  EXPECT_THAT(keys("a*/?.tar"), ElementsAre("a/1.tar", "a/2.tar", "ab/6.tar"));
  EXPECT_THAT(keys("none/*"), ElementsAre());
  EXPECT_THAT(keys("a/5.txt"), ElementsAre("a/5.txt"));

  // A page has 1,000 keys.
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < 1203; i += 4) put(fmt::format("many/{:05}", i), "");
    });
  }
  for (auto& thread : threads) thread.join();
  const auto many = store_->list(MinioServer::url("many/*"));
  ASSERT_TRUE(many.ok()) << many.error().message();
  ASSERT_EQ(many->size(), 1203U);
  EXPECT_EQ(many->back().name, MinioServer::url("many/01202"));
}

TEST_F(S3StoreTest, NoticesAChangedOrMissingObject) {
  put("x", "0123456789");
  const auto object = only("x");
  put("x", "9876543210");
  auto changed = read_text(*store_, object, 0, 5);
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.error().kind(), ErrorKind::kData);
  EXPECT_THAT(changed.error().message(), HasSubstr("was changed since it was listed"));
  EXPECT_THAT(changed.error().message(), HasSubstr(MinioServer::url("x")));

  const auto missing = store_->list(MinioServer::url("none"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().kind(), ErrorKind::kData);
  EXPECT_THAT(missing.error().message(), HasSubstr("there is no object"));
  EXPECT_THAT(store_->list(MinioServer::url("dir/")).error().message(), HasSubstr("dir/**"));
  EXPECT_THAT(store_->list("s3://no-such-bucket/*").error().message(), HasSubstr("NoSuchBucket"));
  Object gone = object;
  gone.name = MinioServer::url("none");
  EXPECT_EQ(read_text(*store_, gone, 0, 5).error().kind(), ErrorKind::kData);
}

TEST_F(S3StoreTest, WrongCredentialsAreNamedButNotPrinted) {
  put("x", "1");
  auto settings = server_->settings();
  settings.credentials->secret = "hunter2";
  S3Store wrong(settings, clock_);
  const auto refused = wrong.list(MinioServer::url("*"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind(), ErrorKind::kMachine);
  EXPECT_THAT(refused.error().message(), HasSubstr("SignatureDoesNotMatch"));
  EXPECT_THAT(refused.error().message(), HasSubstr("check the credentials"));
  EXPECT_THAT(refused.error().message(), testing::Not(HasSubstr("hunter2")));
  settings.credentials.reset();
  S3Store nobody(settings, clock_);
  EXPECT_THAT(nobody.list(MinioServer::url("*")).error().message(),
              HasSubstr("no credentials were found"));
  FakeClock past(WallTime(std::chrono::seconds(1700000000)));
  S3Store late(server_->settings(), past);
  const auto skewed = late.list(MinioServer::url("*"));
  EXPECT_EQ(skewed.error().kind(), ErrorKind::kMachine) << skewed.error().message();
}

TEST_F(S3StoreTest, WritesUnderConditions) {
  const auto url = MinioServer::url("dir/x");
  const auto first = write_text(*store_, url, "one", WriteCondition::if_absent());
  ASSERT_TRUE(first.ok()) << first.error().message();
  ASSERT_TRUE(first->has_value());
  EXPECT_EQ(only("dir/x").version, **first);
  EXPECT_EQ(*write_text(*store_, url, "two", WriteCondition::if_absent()), std::nullopt);
  const auto second = write_text(*store_, url, "three", WriteCondition::if_version(**first));
  ASSERT_TRUE(second.ok() && second->has_value());
  EXPECT_EQ(*write_text(*store_, url, "four", WriteCondition::if_version(**first)), std::nullopt);
  EXPECT_EQ(*read_text(*store_, only("dir/x"), 0, 5), "three");
  EXPECT_EQ(*write_text(*store_, MinioServer::url("no"), "x", WriteCondition::if_version(**first)),
            std::nullopt);

  std::atomic<int> won{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto written = write_text(*store_, MinioServer::url("race"), std::to_string(i),
                                      WriteCondition::if_absent());
      if (written.ok() && written->has_value()) ++won;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(won, 1);
}

TEST_F(S3StoreTest, Removes) {
  put("a/x", "1");
  put("a/b+c d", "2");
  ASSERT_TRUE(store_->remove(MinioServer::url("a/b+c d")).ok());
  const auto again = store_->remove(MinioServer::url("a/b+c d"));
  EXPECT_TRUE(again.ok()) << again.error().message();
  EXPECT_THAT(keys("**"), ElementsAre("a/x"));
  EXPECT_THAT(store_->remove("s3://no-such-bucket/x").error().message(), HasSubstr("NoSuchBucket"));
}

// A server that is killed and started again costs the time it is away, and no byte.
TEST_F(S3StoreTest, RetriesOutlastARestartOfTheServer) {
  std::string text(1 << 20, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 + (i >> 8));
  put("x", text);
  const auto object = only("x");
  RetryOptions options;
  options.backoff.first = std::chrono::milliseconds(10);
  options.backoff.most = std::chrono::milliseconds(200);
  RetryStore store(std::make_unique<S3Store>(server_->settings(), clock_), clock_, options);
  server_->kill();
  std::vector<std::future<Result<std::string>>> reads;
  for (size_t i = 0; i < 4; ++i) {
    reads.push_back(std::async(std::launch::async,
                               [&, i] { return read_text(store, object, i << 18, 1 << 18); }));
  }
  while (store.counters().retries < 8) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_THAT(store.problem(), HasSubstr("cannot be reached"));
  server_->start();
  for (size_t i = 0; i < 4; ++i) {
    const auto read = reads[i].get();
    ASSERT_TRUE(read.ok()) << read.error().message();
    EXPECT_EQ(*read, text.substr(i << 18, 1 << 18));
  }
}

// A server that is suspended: a read hangs, stop() ends it, and afterwards the same store works.
TEST_F(S3StoreTest, AReadOfASuspendedServerCanBeStopped) {
  put("x", "0123456789");
  const auto object = only("x");
  server_->suspend();
  std::stop_source stop;
  auto reading = std::async(std::launch::async, [&] {
    std::byte byte{};
    return store_->read_stoppable(object, 0, {&byte, 1}, stop.get_token());
  });
  EXPECT_EQ(reading.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  stop.request_stop();
  EXPECT_EQ(reading.get().error().kind(), ErrorKind::kInterrupted);
  server_->resume();
  EXPECT_EQ(*read_text(*store_, object, 4, 1), "4");
}

TEST_F(S3StoreTest, AWriteToASuspendedServerCanBeStopped) {
  put("x", "0123456789");
  server_->suspend();
  const std::string text(64 << 20, 'x');  // more than the buffers of a connection hold
  std::stop_source stop;
  auto writing = std::async(std::launch::async, [&] {
    return store_->write_stoppable(MinioServer::url("x"), std::as_bytes(std::span(text)),
                                   WriteCondition::always(), stop.get_token());
  });
  EXPECT_EQ(writing.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout);
  stop.request_stop();
  const auto written = writing.get();
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().kind(), ErrorKind::kInterrupted);
  server_->resume();
  EXPECT_EQ(*read_text(*store_, only("x"), 4, 1), "4");
}

}  // namespace
}  // namespace muster::store
