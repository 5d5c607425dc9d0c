#include "muster/lab/relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <tuple>

#include <gtest/gtest.h>

#include "muster/base/clock.h"
#include "muster/base/fd.h"

namespace muster::lab {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A host on the one side, the switch on the other, and a relay between them.
class RelayTest : public testing::Test {
 protected:
  RelayTest() {
    std::tie(host_, relayed_host_) = sockets();
    std::tie(hub_, relayed_hub_) = sockets();
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    stop_ = Fd(ends[1]);
    stopped_ = Fd(ends[0]);
    thread_ = std::thread(
        [this] { relay({{relayed_host_.get(), relayed_hub_.get(), &control_}}, stopped_.get()); });
  }
  ~RelayTest() override {
    stop_.reset();
    thread_.join();
  }
  static std::pair<Fd, Fd> sockets() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    return {Fd(ends[0]), Fd(ends[1])};
  }
  static void send(const Fd& from, const std::string& text) {
    EXPECT_EQ(write(from.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  static std::optional<std::string> receive(const Fd& at, milliseconds patience) {
    pollfd wait{.fd = at.get(), .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, static_cast<int>(patience.count())) != 1) return std::nullopt;
    std::array<char, 100> buffer{};
    const ssize_t n = read(at.get(), buffer.data(), buffer.size());
    return std::string(buffer.data(), static_cast<size_t>(n));
  }

  Fd host_, relayed_host_, hub_, relayed_hub_, stop_, stopped_;
  RelayControl control_;
  std::thread thread_;
};

TEST_F(RelayTest, PassesPacketsInBothDirections) {
  send(host_, "to the hub");
  EXPECT_EQ(receive(hub_, milliseconds(5000)), "to the hub");
  send(hub_, "to the host");
  EXPECT_EQ(receive(host_, milliseconds(5000)), "to the host");
}

TEST_F(RelayTest, DelaysWhatTheHostSendsAndKeepsItsOrder) {
  control_.delay_us = 60'000;
  const auto begin = steady_clock::now();
  send(host_, "one");
  send(host_, "two");
  // What is sent back shows that the relay has taken the two.
  send(hub_, "back");
  EXPECT_EQ(receive(host_, milliseconds(5000)), "back");
  control_.delay_us = 0;
  send(host_, "three");  // overtakes nothing
  EXPECT_EQ(receive(hub_, milliseconds(5000)), "one");
  EXPECT_GE(steady_clock::now() - begin, milliseconds(60));
  EXPECT_EQ(receive(hub_, milliseconds(5000)), "two");
  EXPECT_EQ(receive(hub_, milliseconds(5000)), "three");
  control_.delay_us = 3'600'000'000;  // of the other direction: no delay
  send(hub_, "back");
  EXPECT_EQ(receive(host_, milliseconds(5000)), "back");
}

TEST_F(RelayTest, LosesThePartThatItIsToldTo) {
  control_.loss_ppm = 500'000;
  int arrived = 0;
  for (int i = 0; i < 200; ++i) {
    send(host_, "x");
    std::this_thread::sleep_for(std::chrono::microseconds(100));  // the sockets hold few
  }
  // What is sent back shows that the relay has taken them all.
  send(hub_, "back");
  EXPECT_EQ(receive(host_, milliseconds(5000)), "back");
  control_.loss_ppm = 0;
  send(host_, "last");
  while (receive(hub_, milliseconds(5000)) == "x") ++arrived;
  EXPECT_GT(arrived, 60);
  EXPECT_LT(arrived, 140);
}

}  // namespace
}  // namespace muster::lab
