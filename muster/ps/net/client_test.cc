// A client with a registry and a server that are played by the test: what it asks, and how often.
#include "muster/ps/net/client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/boot_clock.h"
#include "muster/base/thread.h"
#include "muster/ps/net/network.h"
#include "muster/ps/net/servers_testing.h"
#include "muster/ps/wire.h"

namespace muster::ps {
namespace {

using namespace std::chrono_literals;

constexpr ShardNumber kFew = 8;

struct PlayedRegistry final : NetworkListener {
  void opened(ConnectionId /*connection*/) override {}
  void closed(ConnectionId connection) override { std::erase(clients, connection); }
  void received(ConnectionId connection, const Bytes& bytes) override {
    const auto message = decode_control(*bytes);
    if (message.ok() && std::holds_alternative<AskStatus>(*message)) {
      ++asked;
      network.send(connection, encode_control(status));
      return;
    }
    clients.push_back(connection);
    network.send(connection, encode_control(small_setup(kFew)));
    network.send(connection, encode_control(NewMap{map}));
  }
  void tell() {
    for (const auto client : clients) network.send(client, encode_control(NewMap{map}));
  }

  ServerMap map;
  ServersStatus status;
  int asked = 0;
  std::vector<ConnectionId> clients;
  Network network{*this};
};

struct PlayedServer final : NetworkListener {
  void opened(ConnectionId /*connection*/) override {}
  void closed(ConnectionId /*connection*/) override {}
  void received(ConnectionId from, const Bytes& bytes) override {
    client = from;
    const auto message = decode(bytes);
    if (!message.ok()) return;  // Hello
    if (const auto* const whole = std::get_if<WholeRequest>(&*message)) wholes.push_back(*whole);
    if (const auto* const read = std::get_if<ReadRequest>(&*message)) reads.push_back(*read);
  }
  void answer(const WholeRequest& request, Served served) {
    WholeAnswer answer;
    answer.shard = request.shard;
    answer.epoch = request.epoch;
    answer.request = request.request;
    answer.served = served;
    answer.clock = request.clock;
    answer.era = era;
    answer.contents = Bytes("rows of " + std::to_string(request.shard));
    network.send(client, encode(answer));
  }

  ConnectionId client = 0;
  uint64_t era = 2;
  std::vector<WholeRequest> wholes;
  std::vector<ReadRequest> reads;
  Network network{*this};
};

class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto registry = registry_.network.listen("127.0.0.1:0");
    const auto server = server_.network.listen("127.0.0.1:0");
    ASSERT_TRUE(registry.ok() && server.ok());
    registry_.map.epoch = 1;
    registry_.map.servers.push_back({{"a", 1}, true, *server, 0, {}});
    address_ = *registry;
  }
  void connect(ClientLimits limits = {}) {
    call([&, limits] {
      auto client = Client::connect(address_, clock_, 60s, limits);
      if (client.ok()) client_ = std::move(client).value();
    });
    turn_until([&] { return returned_.load(); });
    ASSERT_NE(client_, nullptr);
  }
  // In a thread of its own, as this one plays the others.
  void call(std::function<void()> what) {
    returned_ = false;
    caller_ = Thread("caller", [this, what = std::move(what)] {
      what();
      returned_ = true;
    });
  }
  void turn() {
    registry_.network.turn(1ms);
    server_.network.turn(1ms);
  }
  void turn_until(const std::function<bool()>& done) {
    wait_for("what is expected", [&] {
      turn();
      return done();
    });
  }
  // Everything that the client has asked before has come after this.
  void hear_all() {
    const size_t before = server_.reads.size();
    const std::vector<uint64_t> key = {1};
    ASSERT_TRUE(client_->begin_read(0, key).ok());
    turn_until([&] { return server_.reads.size() > before; });
  }

  const BootClock clock_;
  std::string address_;
  PlayedRegistry registry_;
  PlayedServer server_;
  std::unique_ptr<Client> client_;
  std::atomic<bool> returned_ = false;
  Thread caller_;
};

TEST_F(ClientTest, AServerThatStaysIsAskedOnce) {
  connect();
  std::optional<Result<std::vector<std::string>>> saved;
  call([&] { saved = client_->save(2, 3); });
  turn_until([&] { return server_.wholes.size() == kFew; });
  for (int i = 0; i < 5; ++i) {
    ++registry_.map.epoch;
    registry_.tell();
  }
  do {
    hear_all();
  } while (server_.reads.back().epoch < registry_.map.epoch);
  EXPECT_EQ(server_.wholes.size(), kFew) << "its answers are under way";

  // It has entered the epochs meanwhile, and serves nothing of an earlier one.
  for (const auto& request : std::exchange(server_.wholes, {})) {
    for (int i = 0; i < 2; ++i) server_.answer(request, Served::kNo);
  }
  turn_until([&] { return server_.wholes.size() == kFew; });
  hear_all();
  EXPECT_EQ(server_.wholes.size(), kFew) << "each of them once";
  for (const auto& request : server_.wholes) {
    EXPECT_EQ(request.epoch, registry_.map.epoch);
    server_.answer(request, Served::kYes);
  }
  turn_until([&] { return returned_.load(); });
  ASSERT_TRUE(saved->ok()) << saved->error().message();
  EXPECT_EQ((*saved)->at(7), "rows of 7");
}

// All others have gone back to a checkpoint, and are at the same step again.
TEST_F(ClientTest, RowsOfAnotherEraAreNotSaved) {
  connect();
  std::optional<Result<std::vector<std::string>>> saved;
  call([&] { saved = client_->save(2, 3); });
  turn_until([&] { return server_.wholes.size() == kFew; });
  for (const auto& request : server_.wholes) {
    EXPECT_EQ(request.era, 2U) << "so that a server in another one does not wait for the clock";
    server_.era = request.shard == 5 ? 4 : 2;
    server_.answer(request, Served::kYes);
  }
  turn_until([&] { return returned_.load(); });
  ASSERT_FALSE(saved->ok());
  EXPECT_EQ(saved->error().kind(), ErrorKind::kInternal);
  EXPECT_EQ(saved->error().message(), "rows of era 2 were asked for, and shard 5 is in era 4");
}

TEST_F(ClientTest, ASaveMayTakeLongWhileRowsArrive) {
  connect({.silence = 2s});
  std::optional<Result<std::vector<std::string>>> saved;
  std::atomic<int> progress = 0;
  call([&] { saved = client_->save(2, 3, [&] { ++progress; }); });
  turn_until([&] { return server_.wholes.size() == kFew; });
  for (const auto& request : server_.wholes) {
    const auto next = std::chrono::steady_clock::now() + 400ms;
    turn_until([&] { return std::chrono::steady_clock::now() >= next; });
    server_.answer(request, Served::kYes);
  }
  turn_until([&] { return returned_.load(); });
  ASSERT_TRUE(saved->ok()) << saved->error().message();
  EXPECT_GT(progress, 1);
  EXPECT_LE(progress, static_cast<int>(kFew));
}

TEST_F(ClientTest, ASaveEndsIfNothingArrives) {
  connect({.silence = 300ms});
  std::optional<Result<std::vector<std::string>>> saved;
  call([&] { saved = client_->save(2, 3); });
  turn_until([&] { return server_.wholes.size() == kFew; });
  server_.answer(server_.wholes[0], Served::kYes);
  turn_until([&] { return returned_.load(); });
  ASSERT_FALSE(saved->ok());
  EXPECT_EQ(saved->error().kind(), ErrorKind::kMachine);
  EXPECT_EQ(saved->error().message().find(
                "parameter servers gave 1 of 8 shards after step 3, and no other one in 0.3 s"),
            0U)
      << saved->error().message();
}

// Port 1: nobody listens there.
class UnreachableServer : public ClientTest {
 protected:
  void SetUp() override {
    ClientTest::SetUp();
    auto& server = registry_.map.servers[0];
    server.address = "127.0.0.1:1";
    ServerStatus one;
    one.key = server.key;
    one.address = server.address;
    one.heard_ago = 50ms;
    registry_.status.servers.push_back(one);
  }
};

TEST_F(UnreachableServer, ThatTheRegistryHearsIsAnErrorThatNamesIt) {
  connect({.unreachable = 300ms});
  std::optional<Status> loaded;
  call([&] { loaded = client_->load(1, std::vector<std::string>(kFew)); });
  turn_until([&] { return returned_.load(); });
  ASSERT_FALSE(loaded->ok());
  EXPECT_EQ(loaded->error().kind(), ErrorKind::kMachine);
  const auto& said = loaded->error().message();
  EXPECT_EQ(said.find("parameter server a at 127.0.0.1:1 could not be reached from here for 0.3 s"),
            0U)
      << said;
  EXPECT_NE(said.find("firewalls"), std::string::npos) << said;
}

TEST_F(UnreachableServer, OfWhichNothingIsAskedIsNoError) {
  connect({.unreachable = 200ms});
  const auto until = std::chrono::steady_clock::now() + 800ms;
  turn_until([&] { return std::chrono::steady_clock::now() >= until; });
  EXPECT_EQ(registry_.asked, 0);
  EXPECT_TRUE(client_->wait().ok());
}

TEST_F(UnreachableServer, ThatIsSilentForTheRegistryTooIsWaitedFor) {
  registry_.status.servers[0].heard_ago = 10s;
  connect({.unreachable = 200ms});
  const std::vector<uint64_t> key = {1};
  const auto read = client_->begin_read(0, key);
  ASSERT_TRUE(read.ok());
  turn_until([&] { return registry_.asked >= 2; });
  const auto there = client_->finish_within(**read, 100ms);
  ASSERT_TRUE(there.ok()) << there.error().message();
  EXPECT_FALSE(*there);
  registry_.status.servers[0].heard_ago = 50ms;  // only the registry reaches it again
  call([&] { EXPECT_FALSE(client_->finish(**read).ok()); });
  turn_until([&] { return returned_.load(); });
}

}  // namespace
}  // namespace muster::ps
