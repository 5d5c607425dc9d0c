// Server processes of a test, the registry that they join, and what their rows must be.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "muster/base/boot_clock.h"
#include "muster/base/check.h"
#include "muster/base/random.h"
#include "muster/ps/net/client.h"
#include "muster/ps/net/registry_service.h"

namespace muster::ps {

inline TablesSetup small_setup(ShardNumber shards = 16, int copies = 2) {
  TablesSetup setup;
  setup.shards = shards;
  setup.copies = copies;
  setup.tables.resize(2);
  for (uint32_t i = 0; i < 2; ++i) {
    setup.tables[i].id = i;
    setup.tables[i].name = "table" + std::to_string(i);
    setup.tables[i].width = 4 + 4 * i;
    setup.tables[i].seed = 3;
  }
  setup.tables[1].optimizer.rule = RowRule::kAdam;
  return setup;
}

// Looks until something is so; ends the program if that takes too long.
template <typename Condition>
void wait_for(const std::string& what, Condition condition,
              Duration most = std::chrono::seconds(60)) {
  const auto until = std::chrono::steady_clock::now() + most;
  while (!condition()) {
    MUSTER_CHECK(std::chrono::steady_clock::now() < until, "waited in vain for " + what);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A process of muster-server with these arguments, which ends with the test, however that ends.
inline pid_t start_server_process(std::vector<std::string> words) {
  words.insert(words.begin(), MUSTER_SERVER_PROGRAM);
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int out : {STDOUT_FILENO, STDERR_FILENO}) {
    posix_spawn_file_actions_addopen(&actions, out, "/dev/null", O_WRONLY, 0);
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody reads the environment meanwhile
  setenv("MUSTER_LAUNCHER_PID", std::to_string(getpid()).c_str(), 1);
  MUSTER_CHECK(posix_spawn(&pid, words[0].c_str(), &actions, nullptr, argv.data(), environ) == 0,
               "a server can be started");
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

class ServerProcesses {
 public:
  // A busy machine may leave a server waiting for its turn for a while.
  static constexpr Duration kLong = std::chrono::seconds(5);

  explicit ServerProcesses(size_t first, TablesSetup setup = small_setup(),
                           std::vector<std::string> arguments = {}, Duration patience = kLong)
      : arguments_(std::move(arguments)) {
    RegistryServiceOptions options;
    options.setup = std::move(setup);
    options.registry.first = first;
    options.registry.lease = patience * 17 / 20;
    options.registry.patience = patience;
    auto started = RegistryService::start(std::move(options), clock_);
    MUSTER_CHECK(started.ok(), "a registry can be started");
    registry_ = std::move(started).value();
    for (size_t i = 0; i < first; ++i) start("s" + std::to_string(i));
  }
  ~ServerProcesses() {
    for (const auto& [id, pid] : processes_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  ServerProcesses(const ServerProcesses&) = delete;
  ServerProcesses& operator=(const ServerProcesses&) = delete;

  RegistryService& registry() { return *registry_; }
  const Clock& clock() const { return clock_; }
  size_t count() const { return processes_.size(); }

  void start(const std::string& id) {
    std::vector<std::string> words = {"--registry", registry_->address(), "--id",
                                      id,           "--listen",           "127.0.0.1:0"};
    words.insert(words.end(), arguments_.begin(), arguments_.end());
    processes_[id] = start_server_process(std::move(words));
  }
  void signal(const std::string& id, int number) { ::kill(processes_.at(id), number); }
  // `told`: whoever started it tells the registry, as a launcher does.
  void kill(const std::string& id, bool told = true) {
    signal(id, SIGKILL);
    wait_end(id);
    if (told) registry_->ended(id);
  }
  int wait_end(const std::string& id) {
    int status = 0;
    ::waitpid(processes_.at(id), &status, 0);
    processes_.erase(id);
    return status;
  }
  // That they have used so far, together: user and system, the 14th and 15th word of stat.
  double cpu_seconds() const {
    double ticks = 0;
    for (const auto& [id, pid] : processes_) {
      std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
      std::string word;
      for (int i = 1; i <= 15 && stat >> word; ++i) {
        if (i >= 14) ticks += std::stod(word);
      }
    }
    return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  // So many servers are ready, and nobody else is there.
  bool all_ready(size_t count) const {
    const ServerMap map = registry_->map();
    return map.servers.size() == count && std::ranges::all_of(map.servers, &ServerEntry::ready);
  }
  void wait_ready(size_t count) {
    wait_for(std::to_string(count) + " servers", [&] { return all_ready(count); });
  }
  std::unique_ptr<Client> connect() {
    auto client = Client::connect(registry_->address(), clock_, std::chrono::seconds(20));
    MUSTER_CHECK(client.ok(), client.error().message());
    return std::move(client).value();
  }

 private:
  const BootClock clock_;
  const std::vector<std::string> arguments_;
  std::unique_ptr<RegistryService> registry_;
  std::map<std::string, pid_t> processes_;
};

// What one process without any network would have.
class Reference {
 public:
  explicit Reference(const TablesSetup& setup) : setup_(setup) {
    for (ShardNumber i = 0; i < setup_.shards; ++i) {
      shards_.push_back(std::make_unique<TableData>(i, setup_.shards, setup_.tables, slabs_));
    }
  }
  void push(PushHeader header, std::span<const uint64_t> keys, std::span<const float> gradients) {
    const size_t width = setup_.tables[header.table].width;
    std::map<ShardNumber, std::map<uint64_t, size_t>> places;
    for (size_t i = 0; i < keys.size(); ++i) places[shard_of(keys[i], setup_.shards)][keys[i]] = i;
    for (const auto& [shard, rows] : places) {
      std::vector<uint64_t> some;
      std::vector<float> their;
      for (const auto& [key, place] : rows) {
        some.push_back(key);
        for (size_t j = 0; j < width; ++j) their.push_back(gradients[place * width + j]);
      }
      MUSTER_CHECK(shards_[shard]->apply(push_bytes(header, some, their)).ok(), "a push");
    }
  }
  void commit(int64_t step) {
    for (auto& shard : shards_) {
      MUSTER_CHECK(shard->apply(push_bytes({.kind = PushKind::kCommit, .step = step}, {}, {})).ok(),
                   "a commit");
    }
  }
  std::vector<float> read(uint32_t table, std::span<const uint64_t> keys) {
    const size_t width = setup_.tables[table].width;
    std::vector<float> weights(keys.size() * width);
    for (size_t i = 0; i < keys.size(); ++i) {
      shards_[shard_of(keys[i], setup_.shards)]->table(table).read(keys.subspan(i, 1),
                                                                   &weights[i * width]);
    }
    return weights;
  }
  Hash128 hash() {
    Hasher hasher;
    for (auto& shard : shards_) {
      const Hash128 one = shard->hash();
      hasher.add(&one, sizeof(one));
    }
    return hasher.finish();
  }

 private:
  const TablesSetup setup_;
  Slabs slabs_;
  std::vector<std::unique_ptr<TableData>> shards_;
};

// Some keys of a lane's batch, each once, in no order: few of them often, most of them seldom.
inline std::vector<uint64_t> batch_keys(int64_t step, uint16_t lane, size_t count) {
  const RandomStream random(17, Purpose::kUser, static_cast<uint64_t>(step), lane);
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; keys.size() < count; ++i) {
    const auto block = random.block(i);
    const uint64_t key = block[0] % 4 == 0 ? block[1] % 10 : block[1] % 2000;
    if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  }
  return keys;
}

}  // namespace muster::ps
