// Two networks in one thread: what is sent is received as it was, shared instead of copied, and
// kept as long as somebody has it.
#include "muster/ps/net/network.h"

#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "muster/ps/bytes.h"
#include "muster/ps/net/servers_testing.h"
#include "muster/ps/net/stream.h"

namespace muster::ps {
namespace {

using namespace std::chrono_literals;

struct End final : NetworkListener {
  void opened(ConnectionId connection) override {
    open = connection;
    ++opens;
  }
  void received(ConnectionId /*connection*/, const Bytes& message) override {
    got.push_back(message);
    std::this_thread::sleep_for(takes);
  }
  void closed(ConnectionId /*connection*/) override { open = 0; }

  ConnectionId open = 0;
  int opens = 0;
  Duration takes{};  // for a message
  std::vector<Bytes> got;
};

class NetworkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto address = there_->listen("127.0.0.1:0");
    ASSERT_TRUE(address.ok()) << address.error().message();
    address_ = *address;
    here_->connect(address_);
    turn_until([&] { return here_end_.open != 0; });
  }
  void turn_until(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "waited in vain";
      here_->turn(1ms);
      there_->turn(1ms);
    }
  }
  void send(Packet packet) { here_->send(here_end_.open, std::move(packet)); }

  std::string address_;
  End here_end_;
  End there_end_;
  std::unique_ptr<Network> here_ = std::make_unique<Network>(here_end_);
  std::unique_ptr<Network> there_ = std::make_unique<Network>(there_end_);
};

std::string text_of(size_t size, char first) {
  std::string text(size, first);
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(first + i % 100);
  return text;
}

// Around the sizes at which bodies are copied, and at which a batch is full.
std::vector<std::pair<std::string, std::string>> parts() {
  std::vector<std::pair<std::string, std::string>> all;
  char first = 1;
  for (const size_t head : {0, 1, 7, 8, 33}) {
    for (const size_t body : {0, 1, 8, 2047, 2048, 2049, 4099, 100001}) {
      all.emplace_back(text_of(head, first), text_of(body, static_cast<char>(first + 1)));
      ++first;
    }
  }
  return all;
}

TEST_F(NetworkTest, MessagesComeInOrderAndWhole) {
  auto all = parts();
  all.emplace_back("large", text_of((8 << 20) + 5, 'l'));
  all.emplace_back("behind", text_of(3, 'b'));
  for (const auto& [head, body] : all) send({head, Bytes(body)});
  send({"no body"});
  turn_until([&] { return there_end_.got.size() == all.size() + 1; });
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_TRUE(*there_end_.got[i] == all[i].first + all[i].second) << i;
  }
  EXPECT_EQ(*there_end_.got.back(), "no body");
}

TEST_F(NetworkTest, MessagesOfABatchBeginAtMultiplesOfEightBytes) {
  for (const auto& [head, body] : parts()) send({head, Bytes(body)});
  turn_until([&] { return there_end_.got.size() == parts().size(); });
  const char* const first = there_end_.got.front()->data();
  for (const auto& message : there_end_.got) EXPECT_EQ((message->data() - first) % 8, 0);
}

// Also as a sanitizer sees it.
TEST_F(NetworkTest, WhatIsKeptOutlivesTheConnectionAndTheNetwork) {
  const auto all = parts();
  for (const auto& [head, body] : all) send({head, Bytes(body)});
  turn_until([&] { return there_end_.got.size() == all.size(); });
  std::vector<Bytes> kept;
  for (size_t i = 0; i < all.size(); i += 3) kept.push_back(there_end_.got[i]);
  there_end_.got.clear();
  there_->close(there_end_.open);
  turn_until([&] { return here_end_.open == 0; });
  here_.reset();
  there_.reset();
  for (size_t i = 0; i < kept.size(); ++i) {
    EXPECT_TRUE(*kept[i] == all[i * 3].first + all[i * 3].second) << i;
  }
}

TEST_F(NetworkTest, WhatWasSentIsFreedAndNotBefore) {
  auto owner = std::make_shared<const std::string>(text_of(1 << 20, 's'));
  const std::weak_ptr<const std::string> sent = owner;
  const std::string expected = *owner;
  const std::string_view view = *owner;
  send({"head", Bytes(std::move(owner), view)});
  EXPECT_FALSE(sent.expired()) << "it waits to be sent, and is not copied";
  turn_until([&] { return !there_end_.got.empty(); });
  EXPECT_TRUE(*there_end_.got.front() == "head" + expected);
  turn_until([&] { return sent.expired(); });
  // Nor is anything left of what was never sent.
  owner = std::make_shared<const std::string>(text_of(1 << 20, 's'));
  const std::weak_ptr<const std::string> unsent = owner;
  const std::string_view again = *owner;
  send({"head", Bytes(std::move(owner), again)});
  here_.reset();
  EXPECT_TRUE(unsent.expired());
}

// Each message may be a copy of a shard, and heartbeats come between turns.
TEST_F(NetworkTest, ATurnInWhichAMessageTookLongEnds) {
  constexpr int kMore = 3;
  std::vector<ConnectionId> all = {here_end_.open};
  for (int i = 0; i < kMore; ++i) all.push_back(here_->connect(address_));
  turn_until([&] { return here_end_.opens == 1 + kMore && there_end_.opens == 1 + kMore; });
  there_end_.takes = 60ms;
  for (const ConnectionId connection : all) here_->send(connection, {"a message"});
  for (int i = 0; i < 10; ++i) here_->turn(5ms);  // all of them arrive
  while (there_end_.got.size() < all.size()) {
    const size_t before = there_end_.got.size();
    there_->turn(10ms);
    ASSERT_LE(there_end_.got.size(), before + 1);
  }
}

// A process that is suspended keeps its connections, as the kernel answers for it.
TEST(NetworkPings, OneThatDoesNotAnswerLosesItsConnection) {
  End end;
  Network network(end);
  const auto address = network.listen("127.0.0.1:0");
  ASSERT_TRUE(address.ok()) << address.error().message();
  const pid_t pid = start_server_process(
      {"--registry", *address, "--id", "s0", "--host", "127.0.0.1", "--listen", "127.0.0.1:0"});
  const auto turn_until = [&](const std::function<bool()>& done) {
    wait_for("a connection to open or to close", [&] {
      network.turn(1ms);
      return done();
    });
  };
  turn_until([&] { return end.open != 0 && !end.got.empty(); });
  ::kill(pid, SIGSTOP);
  turn_until([&] { return end.open == 0; });
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

std::string batch_of(const std::vector<std::string>& pieces) {
  std::string batch;
  for (const auto& piece : pieces) {
    append(batch, uint64_t{piece.size()});
    batch += piece;
  }
  return batch;
}

// A Hello of 33 bytes, as every version has sent it: alone, with nothing behind.
TEST(NetworkBatch, ASingleMessageIsThatOfAllVersions) {
  const Bytes batch(batch_of({std::string(33, 'h')}));
  std::string_view rest = *batch;
  const auto message = take_message(batch, rest);
  ASSERT_TRUE(message);
  EXPECT_EQ(**message, std::string(33, 'h'));
  EXPECT_EQ((*message)->data(), batch->data() + 8) << "it shares the batch";
  EXPECT_TRUE(rest.empty());
}

TEST(NetworkBatch, WhatIsCutShortIsNone) {
  const std::string gap(3, '\0');
  const std::string whole = batch_of({"five." + gap, "second message"});
  std::string sizes = whole;
  const uint64_t five = 5;
  std::memcpy(sizes.data(), &five, sizeof(five));
  const auto messages = [](const std::string& text) {
    const Bytes batch(text);
    std::string_view rest = *batch;
    int count = 0;
    while (!rest.empty()) {
      if (!take_message(batch, rest)) return -1;
      ++count;
    }
    return count;
  };
  EXPECT_EQ(messages(sizes), 2);
  for (size_t size = 1; size < sizes.size(); ++size) {
    const bool first_alone = size >= 13 && size <= 16;  // with or without its gap
    EXPECT_EQ(messages(sizes.substr(0, size)), first_alone ? 1 : -1) << size;
  }
  for (const uint64_t size : {UINT64_MAX, UINT64_MAX - 7, UINT64_MAX / 2, uint64_t{23}}) {
    std::memcpy(sizes.data(), &size, sizeof(size));
    EXPECT_EQ(messages(sizes), -1) << size;
  }
}

}  // namespace
}  // namespace muster::ps
