#include "muster/comm/peer_watch.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/check.h"
#include "muster/comm/descriptors_testing.h"

namespace muster::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kSoon = seconds(20);

// What a handler was told first. More may come when the other members of a test end.
template <typename T>
class First {
 public:
  void set(T value) {
    if (!set_.exchange(true)) promise_.set_value(std::move(value));
  }
  T get() {
    auto future = promise_.get_future();
    EXPECT_EQ(future.wait_for(kSoon), std::future_status::ready);
    return future.get();
  }

 private:
  std::atomic<bool> set_{false};
  std::promise<T> promise_;
};

// One member: its watch, and what its handlers were told.
struct Member {
  First<std::string> lost;
  First<GroupFailure> failed;
  First<bool> alarm;
  std::unique_ptr<PeerWatch> watch;  // last: its thread uses the others

  void start(const std::vector<std::string>& addresses, std::vector<std::string> greetings) {
    const Status status = watch->start(
        addresses, std::move(greetings),
        {.lost = [this](int rank, PeerWatch::Loss,
                        const std::string& how) { lost.set(std::to_string(rank) + " " + how); },
         .failed = [this](int, GroupFailure failure) { failed.set(std::move(failure)); },
         .left = [](int) {},
         .alarm = [this] { alarm.set(true); },
         .asked = [](std::string_view question) { return "re: " + std::string(question); }});
    ASSERT_TRUE(status.ok());
  }
};

class PeerWatchTest : public ::testing::Test {
 protected:
  void make(int size) {
    const SocketAddress here = *parse_address("127.0.0.1", 1);
    for (int r = 0; r < size; ++r) {
      members_.push_back(std::make_unique<Member>());
      members_.back()->watch = *PeerWatch::listen(here, r, size);
      addresses_.push_back(members_.back()->watch->address());
    }
  }
  void start(int rank) {
    std::vector<std::string> greetings;
    for (size_t r = 0; r < addresses_.size(); ++r) {
      greetings.push_back(std::to_string(rank) + " to " + std::to_string(r));
    }
    members_[static_cast<size_t>(rank)]->start(addresses_, greetings);
  }
  std::vector<int> unheard(int rank) {
    auto missing = watch(rank).missing();
    missing.unreached.insert(missing.unreached.end(), missing.silent.begin(), missing.silent.end());
    return missing.unreached;
  }
  PeerWatch& watch(int rank) { return *members_[static_cast<size_t>(rank)]->watch; }

  std::vector<std::unique_ptr<Member>> members_;
  std::vector<std::string> addresses_;
};

TEST_F(PeerWatchTest, EveryoneIsGreetedByEveryone) {
  make(3);
  for (int r = 0; r < 3; ++r) start(r);
  for (int r = 0; r < 3; ++r) {
    ASSERT_TRUE(watch(r).wait_all(steady_clock::now() + kSoon));
    EXPECT_THAT(unheard(r), IsEmpty());
    for (int other = 0; other < 3; ++other) {
      if (other == r) continue;
      EXPECT_EQ(watch(r).greeting(other), std::to_string(other) + " to " + std::to_string(r));
    }
  }
}

TEST_F(PeerWatchTest, WhoHasNotStartedIsNotHeard) {
  make(3);
  start(0);
  start(1);
  EXPECT_FALSE(watch(0).wait_all(steady_clock::now() + milliseconds(50)));
  // How soon the other one is heard depends on the machine.
  const Moment until = steady_clock::now() + kSoon;
  while (unheard(0).size() > 1 && steady_clock::now() < until) {
    EXPECT_FALSE(watch(0).wait_all(steady_clock::now() + milliseconds(5)));
  }
  EXPECT_EQ(unheard(0), std::vector<int>{2});
  watch(0).give_up();
  EXPECT_FALSE(watch(0).wait_all(Moment::max()));
}

TEST_F(PeerWatchTest, OneThatEndsBeforeItConnectsIsLost) {
  make(2);
  start(0);
  members_[1]->watch.reset();
  EXPECT_THAT(members_[0]->lost.get(), HasSubstr("1 is gone"));
}

TEST_F(PeerWatchTest, OneThatWasNeverThereIsLost) {
  make(2);
  members_[1]->watch.reset();
  start(0);
  EXPECT_THAT(members_[0]->lost.get(), HasSubstr("1 is gone"));
}

TEST_F(PeerWatchTest, LastWordsAreHeardBeforeTheEnd) {
  make(2);
  start(0);
  start(1);
  ASSERT_TRUE(watch(1).wait_all(steady_clock::now() + kSoon));
  const GroupFailure failure{.kind = FailureKind::kDeadline, .origin = 0, .message = "too slow"};
  watch(1).say(&failure);
  members_[1]->watch.reset();
  const GroupFailure heard = members_[0]->failed.get();
  EXPECT_EQ(heard.kind, FailureKind::kDeadline);
  EXPECT_EQ(heard.origin, 0);
  EXPECT_EQ(heard.message, "too slow");
  EXPECT_FALSE(watch(0).has_left(1));
  EXPECT_TRUE(watch(0).is_over(1));
}

TEST_F(PeerWatchTest, LeavingIsNotFailing) {
  make(3);
  for (int r = 0; r < 3; ++r) start(r);
  ASSERT_TRUE(watch(1).wait_all(steady_clock::now() + kSoon));
  watch(1).say(nullptr);
  members_[1]->watch.reset();
  while (!watch(0).has_left(1)) std::this_thread::sleep_for(milliseconds(1));
  // Rank 2 dies, and only it is lost.
  ASSERT_TRUE(watch(2).wait_all(steady_clock::now() + kSoon));
  members_[2]->watch.reset();
  EXPECT_THAT(members_[0]->lost.get(), HasSubstr("2 has died"));
}

TEST_F(PeerWatchTest, QuestionsAreAnsweredByThoseWhoLive) {
  make(3);
  start(0);
  start(1);
  // Rank 2 is there and silent, like a process that is stopped: nobody has started its thread.
  const auto until = steady_clock::now() + kSoon;
  while (unheard(0).size() > 1 || unheard(1).size() > 1) {
    ASSERT_LT(steady_clock::now(), until);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(watch(0).ask(1, "where", kSoon), "re: where");
  EXPECT_EQ(watch(0).ask(2, "where", milliseconds(100)), std::nullopt);
  // Late answers to an old question are not taken for new ones; two who ask do not mix.
  std::thread other([&] { EXPECT_EQ(watch(0).ask(1, "a", kSoon), "re: a"); });
  EXPECT_EQ(watch(0).ask(1, "b", kSoon), "re: b");
  other.join();
}

TEST_F(PeerWatchTest, StrangersDisturbNobody) {
  make(2);
  const std::string& text = addresses_[0];
  const SocketAddress door = *parse_address("127.0.0.1", std::stoi(text.substr(text.find(' '))));
  std::vector<Fd> strangers;
  for (const std::string& words :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100, 'x'), std::string("Hl"),
        // The right magic and rank, the wrong token.
        std::string("\x48\x6c\x6c\x6f\x01\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0\0\0\0\0",
                    24),
        std::string()}) {
    Fd fd;
    ASSERT_EQ(start_connect(door, fd), 0);
    (void)::send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL);
    strangers.push_back(std::move(fd));
  }
  start(0);
  strangers.erase(strangers.begin());
  start(1);
  EXPECT_TRUE(watch(0).wait_all(steady_clock::now() + kSoon));
  strangers.clear();
  EXPECT_EQ(watch(0).ask(1, "still there?", kSoon), "re: still there?");
}

// In a process of its own, because it takes all descriptors.
TEST_F(PeerWatchTest, WithoutDescriptorsItDialsLaterAndBlamesNoPeer) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << "the sanitizer needs descriptors";
  const pid_t pid = ::fork();
  if (pid == 0) {
    make(2);
    std::vector<Fd> taken = take_all_descriptors();
    start(0);
    start(1);
    MUSTER_CHECK(!watch(0).wait_all(steady_clock::now() + milliseconds(300)), "it cannot connect");
    MUSTER_CHECK(watch(0).trouble().find("`ulimit -n`") != std::string::npos, "reported");
    MUSTER_CHECK(!watch(0).is_over(1) && !watch(1).is_over(0), "nobody is lost");
    taken.clear();
    for (const int r : {0, 1}) {
      MUSTER_CHECK(watch(r).wait_all(steady_clock::now() + kSoon), "it connects later");
      MUSTER_CHECK(watch(r).trouble().empty(), "the trouble is over");
    }
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

TEST_F(PeerWatchTest, NonsenseAddressesAreRefused) {
  for (const char* address : {"", "127.0.0.1", "127.0.0.1 80", "127.0.0.1 x 1", "localhost 80 1",
                              "127.0.0.1 0 1", "127.0.0.1 99999 1"}) {
    members_.clear();
    addresses_.clear();
    make(2);
    const Status status = watch(0).start({"", address}, {"", ""}, {});
    EXPECT_FALSE(status.ok()) << address;
  }
}

TEST_F(PeerWatchTest, TheAlarmGoesOffInTime) {
  make(2);
  start(0);
  start(1);
  const auto when = steady_clock::now() + milliseconds(20);
  watch(0).set_alarm(when);
  EXPECT_TRUE(members_[0]->alarm.get());
  EXPECT_GE(steady_clock::now(), when);
}

}  // namespace
}  // namespace muster::comm
