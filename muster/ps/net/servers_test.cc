// Real server processes, killed, suspended and joined by others, and what clients see of it.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <numeric>
#include <optional>
#include <system_error>

#include <gtest/gtest.h>

#include "muster/base/scratch_directory.h"
#include "muster/base/thread.h"
#include "muster/ps/net/fetch_map.h"
#include "muster/ps/net/network.h"
#include "muster/ps/net/server.h"
#include "muster/ps/net/servers_testing.h"
#include "muster/ps/wire.h"

namespace muster::ps {
namespace {

using namespace std::chrono_literals;

constexpr uint16_t kLanes = 4;

// The gradient of a lane depends on what it has read, as that of a model does.
std::vector<float> gradients_of(const std::vector<float>& weights, int64_t step, uint16_t lane) {
  std::vector<float> gradients(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    gradients[i] = weights[i] * 0.25F + static_cast<float>((i * 7 + lane) % 11) / 64 -
                   static_cast<float>(step % 5) / 128;
  }
  return gradients;
}

PushHeader lane_header(uint32_t table, int64_t step, uint16_t lane) {
  return {.kind = PushKind::kAdd, .lane = lane, .table = table, .step = step, .lr = 0.05};
}

// One lane of one step.
void compute_lane(Client& client, int64_t step, uint16_t lane) {
  for (uint32_t table = 0; table < 2; ++table) {
    const auto keys = batch_keys(step, lane, 40);
    const auto weights = client.read(table, keys, step);
    ASSERT_TRUE(weights.ok()) << weights.error().message();
    const auto pushed =
        client.push(lane_header(table, step, lane), keys, gradients_of(*weights, step, lane));
    ASSERT_TRUE(pushed.ok()) << pushed.error().message();
  }
}

void train_alone(Reference& reference, int64_t steps) {
  for (int64_t step = 0; step < steps; ++step) {
    for (uint16_t lane = 0; lane < kLanes; ++lane) {
      for (uint32_t table = 0; table < 2; ++table) {
        const auto keys = batch_keys(step, lane, 40);
        reference.push(lane_header(table, step, lane), keys,
                       gradients_of(reference.read(table, keys), step, lane));
      }
    }
    reference.commit(step);
  }
}

Hash128 expected_after(int64_t steps, const TablesSetup& setup) {
  Reference reference(setup);
  train_alone(reference, steps);
  return reference.hash();
}

// Two workers with half of the lanes each; `between` is called in each step.
template <typename Between>
void train(ServerProcesses& servers, int64_t from, int64_t to, Between between) {
  std::vector<std::unique_ptr<Client>> workers;
  for (int i = 0; i < 2; ++i) workers.push_back(servers.connect());
  ASSERT_TRUE(workers[0] && workers[1]);
  for (int64_t step = from; step < to; ++step) {
    Thread other("other", [&] {
      for (uint16_t lane = 2; lane < kLanes; ++lane) compute_lane(*workers[1], step, lane);
      ASSERT_TRUE(workers[1]->wait().ok());
    });
    for (uint16_t lane = 0; lane < 2; ++lane) compute_lane(*workers[0], step, lane);
    between(step);
    ASSERT_TRUE(workers[0]->wait().ok());
    other.join();
    ASSERT_TRUE(workers[static_cast<size_t>(step % 2)]->commit(0, step).ok());
  }
  for (auto& worker : workers) ASSERT_TRUE(worker->wait().ok());
}

Hash128 hash_of(ServerProcesses& servers) {
  const auto client = servers.connect();
  const auto hash = client->hash();
  EXPECT_TRUE(hash.ok());
  return hash.ok() ? *hash : Hash128{};
}

TEST(Servers, GiveRowsTheirFirstWeightsAndUpdateThem) {
  ServerProcesses servers(2);
  const auto client = servers.connect();
  ASSERT_NE(client, nullptr);
  const TablesSetup& setup = client->setup();
  const std::vector<uint64_t> keys = {7, 3, 7, uint64_t{1} << 60};
  const auto read = client->read(0, keys);
  ASSERT_TRUE(read.ok());
  for (size_t i = 0; i < keys.size(); ++i) {
    std::vector<float> first(4);
    initial_weights(setup.tables[0], keys[i], first);
    EXPECT_TRUE(std::ranges::equal(first, std::span(*read).subspan(4 * i, 4))) << i;
  }
  Reference reference(setup);
  const std::vector<uint64_t> some = {9, 2, 500};
  const std::vector<float> gradients = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  for (int64_t step = 0; step < 3; ++step) {
    const PushHeader header{.table = 0, .step = step, .lr = 0.1};
    ASSERT_TRUE(client->push(header, some, gradients).ok());
    reference.push(header, some, gradients);
  }
  ASSERT_TRUE(client->wait().ok());
  EXPECT_EQ(*client->read(0, some), reference.read(0, some));
  EXPECT_EQ(*client->hash(), reference.hash());
}

TEST(Servers, AnyNumberOfThemGivesTheSameBits) {
  const Hash128 expected = expected_after(6, small_setup());
  for (const size_t count : {1, 2, 3}) {
    ServerProcesses servers(count);
    train(servers, 0, 6, [](int64_t) {});
    EXPECT_EQ(hash_of(servers), expected) << count;
  }
}

TEST(Servers, AKilledServerChangesNothing) {
  ServerProcesses servers(3);
  train(servers, 0, 24, [&](int64_t step) {
    if (step % 4 != 2) return;
    const std::string id = "s" + std::to_string(step / 4 % 3);
    servers.wait_ready(3);
    servers.kill(id);
    servers.start(id);
  });
  EXPECT_EQ(hash_of(servers), expected_after(24, small_setup()));
}

TEST(Servers, EvictTheSameRowsInTheSameStep) {
  TablesSetup setup = small_setup();
  setup.tables[0].admission.sights = 2;
  setup.tables[0].eviction = {.age = 5, .most = 4, .every = 4};
  setup.tables[1].admission.probability = 0.5;
  setup.tables[1].eviction = {.age = 0, .most = 6, .every = 3};
  const Hash128 expected = expected_after(24, setup);
  EXPECT_NE(expected, expected_after(24, small_setup()));
  for (const size_t count : {1, 3}) {
    ServerProcesses servers(count, setup);
    train(servers, 0, 24, [&](int64_t step) {
      if (count == 1 || step % 6 != 3) return;
      const std::string id = "s" + std::to_string(step / 6 % 3);
      servers.wait_ready(count);
      servers.kill(id);
      servers.start(id);
    });
    EXPECT_EQ(hash_of(servers), expected) << count;
  }
}

TEST(Servers, OneThatWasSuspendedForTooLongBeginsAgain) {
  ServerProcesses servers(3, small_setup(), {}, 1200ms);
  train(servers, 0, 12, [&](int64_t step) {
    if (step % 4 != 1) return;
    const std::string id = "s" + std::to_string(step / 4 % 3);
    servers.wait_ready(3);
    servers.signal(id, SIGSTOP);
    wait_for("its removal", [&] { return servers.all_ready(2); });
    servers.signal(id, SIGCONT);
  });
  servers.wait_ready(3);
  EXPECT_EQ(hash_of(servers), expected_after(12, small_setup()));
}

// Whether or not whoever started them tells the registry that they have ended.
TEST(Servers, IfAllAreKilledAtOnceClientsAreToldThatRowsAreLost) {
  for (const bool told : {false, true}) {
    ServerProcesses servers(2, small_setup(), {}, 1200ms);
    const auto client = servers.connect();
    const std::vector<uint64_t> keys = {9, 2, 500};
    ASSERT_TRUE(client->push({.table = 0, .lr = 0.1}, keys, std::vector<float>(12, 1.0F)).ok());
    ASSERT_TRUE(client->wait().ok());
    for (const char* const id : {"s0", "s1"}) servers.signal(id, SIGKILL);
    for (const char* const id : {"s0", "s1"}) servers.kill(id, told);
    for (const char* const id : {"s0", "s1"}) servers.start(id);
    const auto read = client->read(0, keys);
    ASSERT_FALSE(read.ok()) << "they are lost";
    EXPECT_EQ(read.error().kind(), ErrorKind::kCheckpoint) << "which ends the job at once";
    EXPECT_NE(read.error().message().find("are lost"), std::string::npos) << read.error().message();
    EXPECT_NE(read.error().message().find("muster resume"), std::string::npos);
  }
}

TEST(Servers, OthersMayComeAndGoWhileWorkersPush) {
  ServerProcesses servers(1);
  train(servers, 0, 16, [&](int64_t step) {
    if (step % 4 != 0) return;
    if (step < 8) {
      servers.start("new" + std::to_string(step));
      servers.wait_ready(servers.count());
    } else {
      servers.kill(step == 8 ? "s0" : "new0");
      servers.wait_ready(servers.count());
    }
  });
  EXPECT_EQ(hash_of(servers), expected_after(16, small_setup()));
}

TEST(Servers, AWorkerThatIsLostAndOneThatPushesItsLanesAgain) {
  ServerProcesses servers(2);
  const auto worker = servers.connect();
  for (int64_t step = 0; step < 5; ++step) {
    {
      const auto lost = servers.connect();
      compute_lane(*lost, step, 1);
      compute_lane(*lost, step, 3);
    }  // it waits for nothing
    for (uint16_t lane = 0; lane < kLanes; ++lane) compute_lane(*worker, step, lane);
    ASSERT_TRUE(worker->wait().ok());
    ASSERT_TRUE(worker->commit(0, step).ok());
  }
  ASSERT_TRUE(worker->wait().ok());
  EXPECT_EQ(hash_of(servers), expected_after(5, small_setup()));
}

TEST(Servers, AReadWaitsForTheCommitOfTheStepBefore) {
  ServerProcesses servers(2);
  const auto worker = servers.connect();
  const auto reader = servers.connect();
  const std::vector<uint64_t> keys = {1, 2, 3};
  const auto early = reader->begin_read(0, keys, 1);
  ASSERT_TRUE(early.ok());
  compute_lane(*worker, 0, 0);
  ASSERT_TRUE(worker->wait().ok());
  ASSERT_TRUE(reader->read(0, keys).ok());  // as they are
  ASSERT_TRUE(worker->commit(0, 0).ok());
  ASSERT_TRUE(reader->finish(**early).ok());
  EXPECT_EQ((*early)->weights(), *reader->read(0, keys));
}

// One that was suspended while the others went back to a checkpoint: what it waits for will not
// come.
TEST(Servers, ASaveOfAnEarlierEraDoesNotWaitForItsClock) {
  ServerProcesses servers(2);
  const auto suspended = servers.connect();
  const auto other = servers.connect();
  const std::vector<std::string> nothing(other->setup().shards);
  ASSERT_TRUE(suspended->load(1, nothing).ok());
  ASSERT_TRUE(other->load(2, nothing).ok());
  const auto saved = suspended->save(1, 100);
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().kind(), ErrorKind::kInternal);
  EXPECT_EQ(saved.error().message(), "rows of era 1 were asked for, and shard 0 is in era 2");
}

TEST(Servers, StatusSaysWhoIsReadyAndHowManyRowsThereAre) {
  ServerProcesses servers(2);
  const auto client = servers.connect();
  const std::vector<uint64_t> keys = {9, 2, 500};
  const std::vector<float> gradients(12, 1.0F);
  ASSERT_TRUE(client->push({.table = 0, .lr = 0.1}, keys, gradients).ok());
  ASSERT_TRUE(client->wait().ok());
  ServersStatus status;
  wait_for("rows", [&] {
    const auto fetched = fetch_servers_status(servers.registry().address(), 5s);
    if (fetched.ok()) status = *fetched;
    return status.servers.size() == 2 && status.servers[0].rows + status.servers[1].rows == 6;
  });
  EXPECT_EQ(status.epoch, servers.registry().map().epoch);
  for (const auto& server : status.servers) {
    EXPECT_EQ(server.standing, ServerStatus::Standing::kReady);
    EXPECT_EQ(server.host, "127.0.0.1");
    EXPECT_EQ(server.address.rfind("127.0.0.1:", 0), 0U) << server.address;
    EXPECT_EQ(server.rows, 3U) << "each has a copy";
    EXPECT_TRUE(server.unreachable.empty());
  }
}

TEST(Servers, StatusBeforeTheyAreThere) {
  const BootClock clock;
  RegistryServiceOptions options;
  options.setup = small_setup();
  options.registry.first = 3;
  const auto registry = RegistryService::start(options, clock);
  ASSERT_TRUE(registry.ok());
  const auto status = fetch_servers_status((*registry)->address(), 5s);
  ASSERT_TRUE(status.ok()) << status.error().message();
  EXPECT_EQ(status->epoch, 0U);
  EXPECT_EQ(status->first, 3U);
  EXPECT_TRUE(status->servers.empty());
  const auto nobody = fetch_servers_status("127.0.0.1:1", 2s);
  ASSERT_FALSE(nobody.ok());
  EXPECT_NE(nobody.error().message().find("127.0.0.1:1"), std::string::npos);
}

TEST(Servers, OneWithoutMemoryForARowEndsAndSaysSo) {
  ServerProcesses servers(1, small_setup(), {"--memory", "1MiB"});
  const auto client = servers.connect();
  std::vector<uint64_t> keys(20000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  const std::vector<float> gradients(keys.size() * 8, 1.0F);
  ASSERT_TRUE(client->push({.table = 1, .lr = 0.1}, keys, gradients).ok());
  const int status = servers.wait_end("s0");
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(ErrorKind::kMachine));
}

// The backup applies a push first, and the primary would fail in the same way: whoever starts
// servers has to see from the first end that memory is full (launch/restarts.h).
TEST(Servers, OfTwoWithoutMemoryForARowTheFirstToEndSaysSo) {
  ServerProcesses servers(2, small_setup(), {"--memory", "1MiB"});
  const auto client = servers.connect();
  std::vector<uint64_t> keys(20000);
  std::iota(keys.begin(), keys.end(), uint64_t{0});
  const std::vector<float> gradients(keys.size() * 8, 1.0F);
  ASSERT_TRUE(client->push({.table = 1, .lr = 0.1}, keys, gradients).ok());
  for (const char* const id : {"s0", "s1"}) {
    const int status = servers.wait_end(id);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(ErrorKind::kMachine)) << id;
    servers.registry().ended(id);
  }
}

// So many rows that a server with a limit writes most of them to disk.
void fill(Client& client, int64_t keys, int64_t batch) {
  for (int64_t first = 0; first < keys; first += batch) {
    std::vector<uint64_t> some(static_cast<size_t>(batch));
    std::iota(some.begin(), some.end(), static_cast<uint64_t>(first));
    const std::vector<float> gradients(some.size() * 8, 0.5F);
    ASSERT_TRUE(client.push({.table = 1, .lr = 0.1}, some, gradients).ok());
  }
  ASSERT_TRUE(client.wait().ok());
}

// A client that asks one server for its shards again and again, and may stop taking them.
class Greedy final : NetworkListener {
 public:
  Greedy(const ServerMap& map, ShardNumber shards, uint64_t questions)
      : epoch_(map.epoch), shards_(shards), questions_(questions) {
    network_.connect(map.servers[0].address);
  }
  // Until it has so many answers.
  void take(uint64_t answers) {
    wait_for("answers", [&] {
      network_.turn(1ms);
      return closed_ || answers_ >= answers;
    });
  }
  bool closed() const { return closed_; }

 private:
  void opened(ConnectionId connection) override {
    network_.send(connection, encode_control(Hello{false, {"", 77}}));
    for (uint64_t i = 0; i < questions_; ++i) {
      network_.send(connection, encode(WholeRequest{.shard = static_cast<ShardNumber>(i % shards_),
                                                    .epoch = epoch_,
                                                    .request = i + 1,
                                                    .clock = 0,
                                                    .contents = true}));
    }
  }
  void received(ConnectionId /*connection*/, const Bytes& /*message*/) override { ++answers_; }
  void closed(ConnectionId /*connection*/) override { closed_ = true; }

  const uint64_t epoch_;
  const ShardNumber shards_;
  const uint64_t questions_;
  uint64_t answers_ = 0;
  bool closed_ = false;
  Network network_{*this};
};

TEST(Servers, AClientThatDoesNotTakeWhatItHasAskedForHoldsUpNobody) {
  ServerProcesses servers(1);
  const auto client = servers.connect();
  fill(*client, 40000, 4000);  // 300 kB in each shard
  constexpr uint64_t kQuestions = 600;
  Greedy greedy(servers.registry().map(), small_setup().shards, kQuestions);
  greedy.take(1);
  const auto hash = client->hash();
  EXPECT_TRUE(hash.ok()) << hash.error().message();
  greedy.take(kQuestions);
  EXPECT_FALSE(greedy.closed()) << "the other client had to wait until its connection was given up";
}

// A client with two connections to one server, the second of which it closes.
class TwiceConnected final : NetworkListener {
 public:
  explicit TwiceConnected(const ServerMap& map)
      : epoch_(map.epoch), address_(map.servers[0].address), first_(network_.connect(address_)) {
    wait_for("the first connection", [&] { return turn() && greeted_ == 1; });
    const ConnectionId second = network_.connect(address_);
    wait_for("the second one", [&] { return turn() && greeted_ == 2; });
    network_.close(second);
  }
  // The server may not have noticed yet that a connection is closed.
  void push() {
    const Bytes commit(push_bytes({.kind = PushKind::kCommit}, {}, {}));
    network_.send(first_, encode(PushRequest{0, epoch_, Push(kSelf, 1, commit)}));
    wait_for("the answer of a push", [&] { return turn() && answered_; });
  }

 private:
  static constexpr uint64_t kSelf = 77;
  bool turn() {
    network_.turn(5ms);
    return true;
  }
  // A question whose answer shows that the server knows the connection.
  void opened(ConnectionId connection) override {
    network_.send(connection, encode_control(Hello{false, {"", kSelf}}));
    network_.send(connection, encode(WholeRequest{.epoch = epoch_, .request = 1}));
  }
  void received(ConnectionId /*connection*/, const Bytes& bytes) override {
    const auto message = decode(bytes);
    ASSERT_TRUE(message.ok());
    if (std::holds_alternative<WholeAnswer>(*message)) ++greeted_;
    if (std::holds_alternative<PushAnswer>(*message)) answered_ = true;
  }
  void closed(ConnectionId /*connection*/) override {}

  const uint64_t epoch_;
  const std::string address_;
  int greeted_ = 0;
  bool answered_ = false;
  Network network_{*this};
  const ConnectionId first_;
};

TEST(Servers, AnswerAClientOnTheConnectionThatIsLeft) {
  ServerProcesses servers(1);
  servers.wait_ready(1);
  TwiceConnected(servers.registry().map()).push();
}

// A server in this process.
class ServerThread {
 public:
  ServerThread(const std::string& registry, const Clock& clock,
               size_t largest_message = kLargestMessage)
      : server_(options(registry, largest_message), clock) {}
  ~ServerThread() { stopped_ = true; }
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;
  // How it has ended; waits for that.
  const Result<Server::End>& end() {
    thread_.join();
    return *end_;
  }

 private:
  ServerOptions options(const std::string& registry, size_t largest_message) {
    ServerOptions options;
    options.id = "s0";
    options.registry = registry;
    options.largest_message = largest_message;
    options.stopped = [this] { return stopped_.load(); };
    return options;
  }

  std::atomic<bool> stopped_ = false;
  Server server_;
  std::optional<Result<Server::End>> end_;
  Thread thread_ = Thread("server", [this] { end_ = server_.run(); });
};

TEST(Servers, AShardThatIsTooLargeForAMessageIsNotSentAndThatIsSaid) {
  const BootClock clock;
  RegistryServiceOptions options;
  options.setup = small_setup();
  options.registry.patience = ServerProcesses::kLong;
  options.registry.lease = ServerProcesses::kLong / 2;
  const auto registry = RegistryService::start(options, clock);
  ASSERT_TRUE(registry.ok());
  ServerThread server((*registry)->address(), clock, 100000);
  const auto client = Client::connect((*registry)->address(), clock, 20s);
  ASSERT_TRUE(client.ok()) << client.error().message();
  fill(**client, 8000, 4000);  // 60 kB in each shard
  auto shards = (*client)->save(0, 0);
  ASSERT_TRUE(shards.ok()) << shards.error().message();
  shards->at(5).resize(100000);
  ClientLimits limits;
  limits.largest_message = 100000;
  const auto limited = Client::connect((*registry)->address(), clock, 20s, limits);
  ASSERT_TRUE(limited.ok());
  const auto loaded = (*limited)->load(1, *shards);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().kind(), ErrorKind::kJob);
  EXPECT_EQ(loaded.error().message().find("shard 5 is too large to be sent"), 0U);

  fill(**client, 40000, 4000);
  ASSERT_TRUE((*client)->hash().ok());
  const auto saved = (*client)->save(0, 0);
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().kind(), ErrorKind::kJob) << "which ends the job at once";
  EXPECT_NE(saved.error().message().find("is too large to be sent"), std::string::npos);
  EXPECT_NE(saved.error().message().find("more tables.shards"), std::string::npos);

  // Nor is a copy: another server joins and wants one.
  const pid_t other = start_server_process({"--registry", (*registry)->address(), "--id", "s1",
                                            "--host", "127.0.0.1", "--listen", "127.0.0.1:0"});
  const auto& end = server.end();
  ASSERT_FALSE(end.ok());
  EXPECT_EQ(end.error().kind(), ErrorKind::kJob) << "which ends the job at once";
  EXPECT_NE(end.error().message().find("bytes, and a copy of it is one message of 100000 at most"),
            std::string::npos)
      << end.error().message();
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

// Lets servers wait, and notes the shortest time between two heartbeats.
struct WaitingRegistry final : NetworkListener {
  void opened(ConnectionId /*connection*/) override {}
  void closed(ConnectionId /*connection*/) override {}
  void received(ConnectionId connection, const Bytes& bytes) override {
    const auto message = decode_control(*bytes);
    ASSERT_TRUE(message.ok());
    const auto* const beat = std::get_if<Beat>(&*message);
    if (beat == nullptr) return network.send(connection, encode_control(small_setup()));
    if (beats > 0) shortest = std::min(shortest, Duration(beat->asked - last));
    last = beat->asked;
    ++beats;
    const HeartbeatReply reply{HeartbeatReply::Standing::kWaiting, lease, {}, {}};
    network.send(connection, encode_control(BeatAnswer{reply, beat->asked}));
  }

  Duration lease{0};
  int beats = 0;
  int64_t last = 0;
  Duration shortest = Duration::max();
  Network network{*this};
};

TEST(Servers, BeatSeveralTimesInAShortLease) {
  const BootClock clock;
  for (const Duration lease : {Duration{40ms}, Duration{10s}}) {
    WaitingRegistry registry;
    registry.lease = lease;
    const auto address = registry.network.listen("127.0.0.1:0");
    ASSERT_TRUE(address.ok());
    const ServerThread server(*address, clock);
    const bool is_short = lease < 100ms;
    wait_for("heartbeats", [&] {
      registry.network.turn(1ms);
      return is_short ? registry.shortest < lease : registry.beats == 5;
    });
    EXPECT_EQ(registry.shortest < 100ms, is_short);
  }
}

// A registry that listens where another one was.
TEST(Servers, OneThatFindsAnotherRegistryDoesNotTakeItsRowsThere) {
  const BootClock clock;
  RegistryServiceOptions options;
  options.setup = small_setup();
  options.registry.patience = ServerProcesses::kLong;
  options.registry.lease = ServerProcesses::kLong / 2;
  for (const bool same_job : {true, false}) {
    options.address = "127.0.0.1:0";
    auto registry = RegistryService::start(options, clock);
    ASSERT_TRUE(registry.ok());
    ServerThread server((*registry)->address(), clock);
    const auto client = Client::connect((*registry)->address(), clock, 20s);
    ASSERT_TRUE(client.ok());
    const std::vector<uint64_t> keys = {9, 2, 500};
    ASSERT_TRUE((*client)->push({.lr = 0.1}, keys, std::vector<float>(12, 1.0F)).ok());
    ASSERT_TRUE((*client)->wait().ok());

    auto then = options;
    then.address = (*registry)->address();
    if (!same_job) then.setup.tables[0].seed += 1;
    registry->reset();
    wait_for("the address", [&] {
      registry = RegistryService::start(then, clock);
      return registry.ok();
    });
    const auto& end = server.end();
    ASSERT_EQ(end.ok(), same_job) << (end.ok() ? "" : end.error().message());
    if (same_job) {
      EXPECT_EQ(*end, Server::End::kRemoved) << "it starts again, without rows";
    } else {
      EXPECT_EQ(end.error().kind(), ErrorKind::kRefused);
      EXPECT_NE(end.error().message().find("another job"), std::string::npos);
      const auto read = (*client)->read(0, keys);
      ASSERT_FALSE(read.ok());
      EXPECT_NE(read.error().message().find("another job"), std::string::npos);
    }
  }
}

uint64_t bytes_below(const std::string& directory) {
  uint64_t bytes = 0;
  std::error_code gone;  // files come and go
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory, gone)) {
    if (entry.path().extension() != ".sst") continue;
    if (const auto size = entry.file_size(gone); !gone) bytes += size;
  }
  return bytes;
}

TEST(Servers, RowsOnDiskAreTheSameThroughKills) {
  const auto scratch = ScratchDirectory::make("muster-disk");
  ASSERT_TRUE(scratch.ok());
  const std::string disk = scratch->path() + "/rows";
  ServerProcesses servers(2, small_setup(), {"--memory", "4MiB", "--disk", disk});
  constexpr int64_t kRows = 80000;  // of 112 bytes, in 2 MiB
  fill(*servers.connect(), kRows, 4000);
  EXPECT_GT(bytes_below(disk), 8u << 20) << "both servers have most rows there";
  train(servers, 0, 12, [&](int64_t step) {
    if (step % 4 != 2) return;
    const std::string id = "s" + std::to_string(step / 4 % 2);
    servers.wait_ready(2);
    servers.kill(id);
    servers.start(id);
  });
  servers.wait_ready(2);
  Reference reference(small_setup());
  std::vector<uint64_t> all(kRows);
  std::iota(all.begin(), all.end(), uint64_t{0});
  reference.push({.table = 1, .lr = 0.1}, all, std::vector<float>(all.size() * 8, 0.5F));
  train_alone(reference, 12);
  const auto client = servers.connect();
  EXPECT_EQ(*client->hash(), reference.hash());
  EXPECT_EQ(*client->read(1, all), reference.read(1, all));
}

TEST(Servers, OneWhoseDiskCannotBeUsedEndsAndSaysSo) {
  ServerProcesses servers(1, small_setup(), {"--memory", "4MiB", "--disk", "/dev/null/rows"});
  const int status = servers.wait_end("s0");
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(ErrorKind::kIo));
}

TEST(Servers, WithoutAnyAClientSaysWhatIsMissing) {
  const BootClock clock;
  const auto nobody = Client::connect("127.0.0.1:1", clock, 300ms);
  ASSERT_FALSE(nobody.ok());
  EXPECT_NE(nobody.error().message().find("does not answer"), std::string::npos);
  RegistryServiceOptions options;
  options.setup = small_setup();
  const auto registry = RegistryService::start(options, clock);
  ASSERT_TRUE(registry.ok());
  const auto waiting = Client::connect((*registry)->address(), clock, 4s);
  ASSERT_FALSE(waiting.ok());
  EXPECT_NE(waiting.error().message().find("waits for more"), std::string::npos)
      << waiting.error().message();
}

}  // namespace
}  // namespace muster::ps
