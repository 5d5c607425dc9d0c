#include "muster/store/http_store.h"

#include <fstream>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/store/hdfs_store.h"
#include "muster/store/open.h"
#include "muster/store/retry.h"
#include "muster/store/server_testing.h"
#include "muster/store/store_testing.h"

namespace muster::store {
namespace {

using testing::HasSubstr;

TEST(ContentRangeTest, IsReadOrRefused) {
  EXPECT_EQ(parse_content_range("bytes 5-9/100"),
            (ContentRange{.first = 5, .last = 9, .size = 100}));
  for (const char* text : {"", "bytes", "bytes */100", "bytes 5-9/*", "bytes 9-5/100",
                           "bytes 5-100/100", "items 5-9/100", "bytes 5-9", "bytes -9/100"}) {
    EXPECT_FALSE(parse_content_range(text)) << text;
  }
}

class HttpStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = RangeServer::unavailable(); !why.empty()) GTEST_SKIP() << why;
    server_ = std::make_unique<RangeServer>();
  }
  Object only(const std::string& path) {
    auto found = store_.list(server_->url(path));
    EXPECT_TRUE(found.ok()) << found.error().message();
    return found.ok() ? found->at(0) : Object{};
  }
  Error read_error(const Object& object, uint64_t offset, size_t length) {
    auto read = read_text(store_, object, offset, length);
    EXPECT_FALSE(read.ok());
    return read.ok() ? Error(ErrorKind::kInternal, "no error") : std::move(read).error();
  }
  static std::string expected(size_t offset, size_t length) {
    std::string text;
    for (size_t i = offset; i < offset + length; ++i) {
      text += static_cast<char>((i * 7 + (i >> 8)) % 256);
    }
    return text;
  }

  std::unique_ptr<RangeServer> server_;
  HttpStore store_;
};

TEST_F(HttpStoreTest, ReadsRanges) {
  for (const char* path : {"/good", "/no-etag", "/weak", "/bare", "/gzip", "/redirect"}) {
    const auto object = only(path);
    EXPECT_EQ(object.size, 100000U) << path;
    EXPECT_EQ(*read_text(store_, object, 0, 10), expected(0, 10)) << path;
    EXPECT_EQ(*read_text(store_, object, 99990, 10), expected(99990, 10)) << path;
    EXPECT_EQ(*read_text(store_, object, 0, 100000), expected(0, 100000)) << path;
    EXPECT_EQ(*read_text(store_, object, 5, 0), "") << path;
  }
}

TEST_F(HttpStoreTest, KeepsConnectionsOpen) {
  const auto object = only("/good");
  const int before = std::stoi(server_->post("/count"));
  for (size_t i = 0; i < 20; ++i) ASSERT_TRUE(read_text(store_, object, i * 1000, 1000).ok());
  EXPECT_EQ(std::stoi(server_->post("/count")), before + 1);  // that of the question itself
}

TEST_F(HttpStoreTest, AServerWithoutRangesServesWholeObjectsOnly) {
  const auto object = only("/no-ranges");
  EXPECT_EQ(object.size, 100000U);
  EXPECT_EQ(*read_text(store_, object, 0, 100000), expected(0, 100000));
  for (const auto& [offset, length] : {std::pair<uint64_t, size_t>{0, 10}, {10, 99990}, {10, 5}}) {
    const auto error = read_error(object, offset, length);
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_THAT(error.message(), HasSubstr("does not support ranges"));
  }
}

TEST_F(HttpStoreTest, NoticesAChangedObject) {
  std::vector<Object> objects;
  for (const char* path : {"/good", "/no-etag", "/weak", "/ignores", "/no-ranges"}) {
    objects.push_back(only(path));
  }
  server_->post("/change");
  for (const auto& object : objects) {
    const auto error = read_error(object, 0, 100000);
    EXPECT_EQ(error.kind(), ErrorKind::kData) << object.name;
    EXPECT_THAT(error.message(), HasSubstr("was changed since it was listed")) << object.name;
    EXPECT_THAT(error.message(), HasSubstr("`muster data index JOB --again`")) << object.name;
    EXPECT_THAT(error.message(), HasSubstr(object.name));
  }
}

TEST_F(HttpStoreTest, NoticesAnObjectThatBecameShorterByItsSizeAlone) {
  const auto object = only("/plain");
  EXPECT_EQ(*read_text(store_, object, 0, 100000), expected(0, 100000));
  server_->post("/shorten");
  for (const size_t length : {size_t{100000}, size_t{10}}) {
    const auto error = read_error(object, 0, length);
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_THAT(error.message(), HasSubstr("was changed since it was listed"));
  }
}

TEST_F(HttpStoreTest, ARedirectFromHttpsToHttpIsRefused) {
  const std::string tls = server_->post("/tls");
  if (tls.empty()) GTEST_SKIP() << "there is no openssl to make a certificate with";
  const size_t line = tls.find('\n');
  const std::string root = "https://127.0.0.1:" + tls.substr(0, line);
  const auto scratch = ScratchDirectory::make("muster-test").value();
  const std::string certificate = scratch.path() + "/certificate.pem";
  std::ofstream(certificate) << tls.substr(line + 1);
  HttpStore store({.ca_file = certificate});
  const auto good = store.list(root + "/redirect");
  ASSERT_TRUE(good.ok()) << good.error().message();
  EXPECT_EQ(*read_text(store, good->at(0), 3, 10), expected(3, 10));
  const auto downgraded = store.list(root + "/downgrade");
  ASSERT_FALSE(downgraded.ok());
  EXPECT_EQ(downgraded.error().kind(), ErrorKind::kData);
  EXPECT_THAT(downgraded.error().message(), HasSubstr("redirects from https to http"));
  // What is no HTTP behind TLS may pass.
  EXPECT_EQ(store.list(root + "/garbled").error().kind(), ErrorKind::kIo);
  EXPECT_EQ(only("/downgrade").size, 100000U);
}

TEST_F(HttpStoreTest, WrongAnswersAreErrors) {
  auto object = only("/good");
  const auto with = [&](const std::string& path) {
    object.name = server_->url(path);
    return object;
  };
  EXPECT_THAT(read_error(with("/wrong"), 0, 10).message(), HasSubstr("sent bytes 1 to 10"));
  EXPECT_THAT(read_error(with("/long"), 0, 10).message(), HasSubstr("more than the 10 bytes"));
  EXPECT_EQ(read_error(with("/short"), 0, 10).kind(), ErrorKind::kIo);
  EXPECT_EQ(read_error(with("/garbled"), 0, 10).kind(), ErrorKind::kIo);
  EXPECT_EQ(read_error(with("/redirect-garbled"), 0, 10).kind(), ErrorKind::kIo);
  EXPECT_EQ(read_error(with("/elsewhere"), 0, 10).kind(), ErrorKind::kJob);
  EXPECT_EQ(read_error(with("/loop"), 0, 10).kind(), ErrorKind::kData);
  EXPECT_EQ(read_error(with("/forbidden"), 0, 10).kind(), ErrorKind::kMachine);
  const auto gone = read_error(with("/nothing"), 0, 10);
  EXPECT_EQ(gone.kind(), ErrorKind::kData);
  EXPECT_THAT(gone.message(), HasSubstr("there is no"));
  const auto busy = read_error(with("/busy"), 0, 10);
  EXPECT_EQ(busy.kind(), ErrorKind::kIo);
  EXPECT_THAT(busy.message(), HasSubstr("503"));
  object.size = 7;
  EXPECT_THAT(read_error(with("/good"), 0, 5).message(), HasSubstr("was changed"));
}

TEST_F(HttpStoreTest, Lists) {
  EXPECT_EQ(only("/empty").size, 0U);
  EXPECT_EQ(only("/redirect").name, server_->url("/redirect"));
  EXPECT_EQ(store_.list(server_->url("/nothing")).error().kind(), ErrorKind::kData);
  EXPECT_THAT(store_.list(server_->url("/*.tar")).error().message(), HasSubstr("cannot be listed"));
  EXPECT_EQ(only("/good?signature=a*b").size, only("/good").size);
  const auto away =
      store_.list("http://127.0.0.1:" + std::to_string(free_port()) + "/x?key=secret");
  ASSERT_FALSE(away.ok());
  EXPECT_EQ(away.error().kind(), ErrorKind::kIo);
  EXPECT_THAT(away.error().message(), HasSubstr("cannot be reached"));
  EXPECT_THAT(away.error().message(), testing::Not(HasSubstr("secret")));
}

TEST_F(HttpStoreTest, AReadThatHangsIsStoppedAtOnce) {
  auto object = only("/good");
  object.name = server_->url("/slow");
  std::stop_source stop;
  auto reading = std::async(std::launch::async, [&] {
    std::vector<std::byte> bytes(1000);
    return store_.read_stoppable(object, 0, bytes, stop.get_token());
  });
  EXPECT_EQ(reading.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  const auto asked = std::chrono::steady_clock::now();
  stop.request_stop();
  EXPECT_EQ(reading.get().error().kind(), ErrorKind::kInterrupted);
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(5));
}

TEST_F(HttpStoreTest, AListCanBeStopped) {
  // Of one object, of a file's status, and of a folder.
  for (const auto& address : {server_->url("/silent"), "webhdfs://" + server_->host() + "/d/silent",
                              "webhdfs://" + server_->host() + "/d/silent/*"}) {
    const auto store = open_store();
    std::stop_source stop;
    auto listing = std::async(std::launch::async,
                              [&] { return store->list_stoppable(address, stop.get_token()); });
    EXPECT_EQ(listing.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
    const auto asked = std::chrono::steady_clock::now();
    stop.request_stop();
    EXPECT_EQ(listing.get().error().kind(), ErrorKind::kInterrupted);
    EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(5));
  }
}

TEST_F(HttpStoreTest, AStalledReadFailsAfterItsTimeout) {
  auto object = only("/good");
  object.name = server_->url("/slow");
  HttpStore impatient({.connect_timeout = std::chrono::seconds(1),
                       .stall_timeout = std::chrono::seconds(1),
                       .ca_file = ""});
  const auto read = read_text(impatient, object, 0, 1000);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().kind(), ErrorKind::kIo);
  // So does one that receives too little.
  object.name = server_->url("/trickle");
  const auto trickle = read_text(impatient, object, 0, 1000);
  ASSERT_FALSE(trickle.ok());
  EXPECT_EQ(trickle.error().kind(), ErrorKind::kIo);
}

TEST_F(HttpStoreTest, RetriesPassABusyServer) {
  SystemClock clock;
  RetryOptions options;
  options.backoff.first = std::chrono::milliseconds(5);
  RetryStore store(open_store(), clock, options);
  const auto found = store.list(server_->url("/busy"));
  ASSERT_TRUE(found.ok()) << found.error().message();
  EXPECT_EQ(*read_text(store, found->at(0), 100, 50), expected(100, 50));
  EXPECT_EQ(store.counters().retries, 2U);
}

TEST_F(HttpStoreTest, ManyThreadsReadAtOnce) {
  const auto object = only("/good");
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 20; ++i) {
        const size_t offset = (t * 4999 + i * 313) % 90000;
        const auto text = read_text(store_, object, offset, 5000);
        if (!text.ok() || *text != expected(offset, 5000)) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

class HdfsStoreTest : public HttpStoreTest {
 protected:
  std::string url(const std::string& path) const { return "webhdfs://" + server_->host() + path; }
  HdfsStore hdfs_{[](const std::string& name) {
    return name == "HADOOP_USER_NAME" ? std::optional<std::string>("me & you") : std::nullopt;
  }};
};

TEST_F(HdfsStoreTest, ListsAndReads) {
  const auto found = hdfs_.list(url("/d/**"));
  ASSERT_TRUE(found.ok()) << found.error().message();
  ASSERT_EQ(found->size(), 3U);
  EXPECT_EQ(found->at(0).name, url("/d/a.txt"));
  EXPECT_EQ(found->at(1).name, url("/d/b c=1.txt"));
  EXPECT_EQ(found->at(2).name, url("/d/sub/c.txt"));
  EXPECT_EQ(found->at(2).version, "1700000000000-10");
  EXPECT_EQ(*read_text(hdfs_, found->at(1), 0, 4), "beta");
  EXPECT_EQ(*read_text(hdfs_, found->at(2), 3, 4), "3456");
  EXPECT_EQ(hdfs_.list(url("/d/*/c.txt"))->size(), 1U);
  EXPECT_EQ(hdfs_.list(url("/d/a.txt/*"))->size(), 0U);
  EXPECT_EQ(hdfs_.list(url("/none/*"))->size(), 0U);
  EXPECT_EQ(*hdfs_.list(url("/d/a.txt")), std::vector{found->at(0)});
}

TEST_F(HdfsStoreTest, OnlyTheFolderThatFailedIsListedAgain) {
  SystemClock clock;
  RetryStore store(open_store(), clock, quick_retries());
  const auto found = store.list(url("/busy/*/*"));
  ASSERT_TRUE(found.ok()) << found.error().message();
  EXPECT_EQ(found->size(), 2U);
  EXPECT_EQ(server_->post("/asked"), "/busy:2 /busy/x:2 /busy/y:2");
}

TEST_F(HdfsStoreTest, ABlockWithoutADataNodeIsTriedAgain) {
  auto object = hdfs_.list(url("/d/away"))->at(0);
  const auto away = read_text(hdfs_, object, 0, 4);
  ASSERT_FALSE(away.ok());
  EXPECT_EQ(away.error().kind(), ErrorKind::kIo);
  EXPECT_THAT(away.error().message(), HasSubstr("HDFS cannot answer now (IOException: at /d/away"));
  // What lies behind the end does not come back, also if no version is known.
  object.version.clear();
  const auto behind = read_text(hdfs_, object, 2, 4);
  ASSERT_FALSE(behind.ok());
  EXPECT_EQ(behind.error().kind(), ErrorKind::kData);
}

TEST_F(HdfsStoreTest, SaysWhatIsWrong) {
  EXPECT_THAT(hdfs_.list(url("/none")).error().message(), HasSubstr("there is no file"));
  EXPECT_THAT(hdfs_.list(url("/d")).error().message(), HasSubstr("is a directory"));
  const auto forbidden = hdfs_.list(url("/private"));
  EXPECT_EQ(forbidden.error().kind(), ErrorKind::kMachine);
  EXPECT_THAT(forbidden.error().message(), HasSubstr("AccessControlException: at /private)"));
  EXPECT_EQ(hdfs_.list(url("/standby")).error().kind(), ErrorKind::kIo);
  const auto object = hdfs_.list(url("/d/a.txt"))->at(0);
  server_->post("/change");
  const auto changed = read_text(hdfs_, object, 0, 5);
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.error().kind(), ErrorKind::kData);
  EXPECT_THAT(changed.error().message(), HasSubstr("was changed"));
}

}  // namespace
}  // namespace muster::store
