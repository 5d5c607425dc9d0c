#include "muster/comm/hello_listener.h"

#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/check.h"
#include "muster/comm/descriptors_testing.h"
#include "muster/comm/watch_frames.h"

namespace muster::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::IsEmpty;

constexpr uint64_t kToken = 0x1234567890abcdef;

// Rank 0 of 3 listens; the time is moved by hand.
class HelloListenerTest : public ::testing::Test {
 protected:
  static constexpr HelloListener::Limits kLimits{
      .strangers = 3, .hello_time = seconds(5), .pause = milliseconds(100)};

  HelloListenerTest() : listener_(listen_here(), kToken, 0, 3, kLimits) {}
  static Listener listen_here() {
    SocketAddress here = *parse_address("127.0.0.1", 1);
    here.set_port(0);
    return std::move(listen_at(here, 64)).value();
  }

  Fd connect(std::string_view bytes) {
    Fd fd;
    EXPECT_EQ(start_connect(listener_.address(), fd), 0);
    (void)::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return fd;
  }
  // Polls and handles until nothing happens any more.
  std::vector<HelloListener::Guest> turn() {
    std::vector<HelloListener::Guest> all;
    while (true) {
      std::vector<pollfd> set;
      listener_.add_to(set, now_);
      const int ready = ::poll(set.data(), set.size(), 20);
      for (auto& guest : listener_.handle(set, now_)) all.push_back(std::move(guest));
      if (ready == 0) return all;
    }
  }
  static std::string hello(int rank, uint64_t token, std::string_view greeting) {
    return encode(
        HelloHeader{.rank = rank, .token = token, .length = static_cast<uint32_t>(greeting.size())},
        greeting);
  }
  static bool is_closed(const Fd& fd) {
    char byte = 0;
    pollfd one{fd.get(), POLLIN, 0};
    return ::poll(&one, 1, 1000) == 1 && ::recv(fd.get(), &byte, 1, MSG_DONTWAIT) <= 0;
  }

  HelloListener listener_;
  Moment now_;
};

TEST_F(HelloListenerTest, AMemberIsLetInAndWhatFollowsItsHelloIsNotRead) {
  const Fd member = connect(hello(2, kToken, "good day") + "more");
  const auto guests = turn();
  ASSERT_EQ(guests.size(), 1u);
  EXPECT_EQ(guests[0].rank, 2);
  EXPECT_EQ(guests[0].greeting, "good day");
  char rest[16] = "";
  EXPECT_EQ(::recv(guests[0].fd.get(), rest, sizeof(rest), MSG_DONTWAIT), 4);
  EXPECT_EQ(listener_.strangers(), 0u);
}

TEST_F(HelloListenerTest, AStrangersBytesAreNotStored) {
  const std::string flood(1 << 20, 'x');
  for (const std::string& first :
       {flood, hello(2, kToken + 1, flood.substr(0, 100)), hello(0, kToken, ""),
        hello(3, kToken, ""), hello(-1, kToken, "")}) {
    const Fd stranger = connect(first);
    EXPECT_THAT(turn(), IsEmpty());
    EXPECT_EQ(listener_.strangers(), 0u) << "closed at the header";
    EXPECT_TRUE(is_closed(stranger));
  }
  // The right token, a greeting without end.
  const HelloHeader large{.rank = 2, .token = kToken, .length = kLongestGreeting + 1};
  const Fd stranger = connect(encode(large, flood));
  EXPECT_THAT(turn(), IsEmpty());
  EXPECT_EQ(listener_.strangers(), 0u);
}

TEST_F(HelloListenerTest, AStrangerHasLimitedTimeForItsHello) {
  const Fd silent = connect("");
  const Fd slow = connect(hello(1, kToken, "half of it").substr(0, 30));
  EXPECT_THAT(turn(), IsEmpty());
  EXPECT_EQ(listener_.strangers(), 2u);
  ASSERT_TRUE(listener_.due().has_value());
  EXPECT_EQ(*listener_.due(), now_ + kLimits.hello_time);
  now_ += kLimits.hello_time - milliseconds(1);
  EXPECT_THAT(turn(), IsEmpty());
  EXPECT_EQ(listener_.strangers(), 2u);
  now_ += milliseconds(1);
  EXPECT_THAT(turn(), IsEmpty());
  EXPECT_EQ(listener_.strangers(), 0u);
  EXPECT_FALSE(listener_.due().has_value());
  EXPECT_TRUE(is_closed(silent));
  EXPECT_TRUE(is_closed(slow));
}

TEST_F(HelloListenerTest, TheOldestStrangerMakesRoomForTheNext) {
  std::vector<Fd> strangers;
  for (int i = 0; i < 10; ++i) {
    strangers.push_back(connect(""));
    EXPECT_THAT(turn(), IsEmpty());
    EXPECT_LE(listener_.strangers(), kLimits.strangers);
  }
  EXPECT_TRUE(is_closed(strangers[0]));
  const Fd member = connect(hello(1, kToken, ""));
  EXPECT_EQ(turn().size(), 1u);
}

TEST_F(HelloListenerTest, NothingIsAcceptedAfterClose) {
  const Fd stranger = connect("");
  EXPECT_THAT(turn(), IsEmpty());
  listener_.close();
  EXPECT_TRUE(is_closed(stranger));
  std::vector<pollfd> set;
  listener_.add_to(set, now_);
  EXPECT_THAT(set, IsEmpty());
  EXPECT_THAT(listener_.handle(set, now_), IsEmpty());
}

// Without a free descriptor a waiting connection stays ready, and poll() returns at once, again
// and again. In a process of its own, because it takes all descriptors.
TEST_F(HelloListenerTest, WithoutDescriptorsItPausesAndAcceptsLater) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << "the sanitizer needs descriptors";
  const pid_t pid = ::fork();
  if (pid == 0) {
    const Fd member = connect(hello(1, kToken, "at last"));
    MUSTER_CHECK(bool(member), "connect");
    std::vector<Fd> taken = take_all_descriptors();
    MUSTER_CHECK(turn().empty(), "there was no descriptor to accept with");
    MUSTER_CHECK(listener_.trouble().find("Too many open files") != std::string::npos, "reported");
    MUSTER_CHECK(listener_.due() == now_ + kLimits.pause, "it pauses");
    std::vector<pollfd> set;
    listener_.add_to(set, now_);
    MUSTER_CHECK(set.size() == 1 && set[0].fd == -1, "it does not poll what it cannot accept");
    taken.clear();
    MUSTER_CHECK(turn().empty(), "the pause is not over");
    now_ += kLimits.pause;
    MUSTER_CHECK(turn().size() == 1 && listener_.trouble().empty(), "it accepts again");
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace muster::comm
