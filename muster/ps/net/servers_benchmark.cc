// Reading and pushing rows through real servers, in batches of 4,096 keys; see ps_benchmark.cc for
// the tables alone.
//
//   muster_ps_benchmark --benchmark_filter=Served    MUSTER_ROWS: how many rows are there (2
//   million)
//
// Arguments: width, shards, servers. Each row is on one server, or on two of two. `per_core`: rows
// for each second of processor time that servers have used. `payload`: bytes sent by the client for
// each byte of keys and gradients.
//
//   muster_ps_benchmark --benchmark_filter='TakeOver|NewBackup'
//
// TakeOver: from SIGKILL of a server until a client has read rows of all shards again. NewBackup:
// from the start of the process that replaces it until that has a copy of every row and is ready;
// the last argument says whether a client pushes meanwhile. `s_per_GB`: seconds by GB of rows.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include <benchmark/benchmark.h>

#include "muster/ps/net/servers_testing.h"

namespace muster::ps {
namespace {

constexpr size_t kBatch = 4096;
constexpr size_t kBatches = 64;
constexpr size_t kUnderWay = 4;  // batches that a client has asked for and not got yet

uint64_t row_count() {
  const char* const text = std::getenv("MUSTER_ROWS");  // NOLINT(concurrency-mt-unsafe)
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 2'000'000;
}

struct Served {
  Served(uint32_t width, ShardNumber shards, size_t servers)
      : processes(servers, setup_of(width, shards, servers > 1 ? 2 : 1)),
        client(processes.connect()) {
    const uint64_t rows = row_count();
    std::vector<uint64_t> keys(kBatch);
    const std::vector<float> gradients(kBatch * width, 0.5F);
    for (uint64_t first = 0; first < rows; first += kBatch) {
      for (size_t i = 0; i < kBatch; ++i) keys[i] = first + i;
      MUSTER_CHECK(client->push({.lr = 0.1}, keys, gradients).ok(), "a push");
    }
    MUSTER_CHECK(client->wait().ok(), "all are there");
    std::mt19937_64 random(1);
    for (size_t b = 0; b < kBatches; ++b) {
      auto& batch = batches.emplace_back(kBatch);
      for (uint64_t& key : batch) key = random() % rows;
      std::ranges::sort(batch);
      batch.erase(std::unique(batch.begin(), batch.end()), batch.end());
    }
  }
  static TablesSetup setup_of(uint32_t width, ShardNumber shards, int copies) {
    TablesSetup setup;
    setup.shards = shards;
    setup.copies = copies;
    setup.tables.resize(1);
    setup.tables[0].width = width;
    return setup;
  }

  // Another one each time, so that what was copied is what is served next.
  std::string next_victim() { return "s" + std::to_string(killed++ % processes.count()); }
  uint64_t incarnation(const std::string& id) {
    const ServerMap map = processes.registry().map();
    for (const ServerEntry& server : map.servers) {
      if (server.key.id == id) return server.key.incarnation;
    }
    return 0;
  }
  // It is ready, and not the process that it was before.
  bool is_back(const std::string& id, uint64_t before) {
    return incarnation(id) != before && processes.all_ready(2);
  }
  double gigabytes() const {
    const TableOptions& table = client->setup().tables[0];
    const size_t floats = table.width + table.optimizer.state(table.width);
    return static_cast<double>(row_count() * (sizeof(Row) + floats * sizeof(float))) / 1e9;
  }

  ServerProcesses processes;
  std::unique_ptr<Client> client;
  size_t killed = 0;
  std::vector<std::vector<uint64_t>> batches;
};

Served& served(const benchmark::State& state) {
  using Key = std::tuple<int64_t, int64_t, int64_t>;
  static std::unique_ptr<Served> kept;
  static Key key;
  const Key wanted = {state.range(0), state.range(1), state.range(2)};
  if (kept == nullptr || key != wanted) {
    kept.reset();
    kept = std::make_unique<Served>(static_cast<uint32_t>(state.range(0)),
                                    static_cast<ShardNumber>(state.range(1)),
                                    static_cast<size_t>(state.range(2)));
    key = wanted;
  }
  return *kept;
}

// Of a benchmark, from here on.
class ServersTime {
 public:
  explicit ServersTime(const ServerProcesses& servers)
      : servers_(servers), before_(servers.cpu_seconds()) {}
  void report(benchmark::State& state, size_t rows) const {
    state.SetItemsProcessed(static_cast<int64_t>(rows));
    state.counters["per_core"] = static_cast<double>(rows) / (servers_.cpu_seconds() - before_);
  }

 private:
  const ServerProcesses& servers_;
  const double before_;
};

void BM_ServedRead(benchmark::State& state) {
  Served& on = served(state);
  const ServersTime time(on.processes);
  size_t number = 0, rows = 0;
  std::deque<std::shared_ptr<RowRead>> under_way;
  while (state.KeepRunning()) {
    const auto& keys = on.batches[number++ % kBatches];
    rows += keys.size();
    under_way.push_back(on.client->begin_read(0, keys).value());
    if (under_way.size() < kUnderWay) continue;
    MUSTER_CHECK(on.client->finish(*under_way.front()).ok(), "a read");
    under_way.pop_front();
  }
  for (const auto& read : under_way) MUSTER_CHECK(on.client->finish(*read).ok(), "a read");
  time.report(state, rows);
}

void BM_ServedPush(benchmark::State& state) {
  Served& on = served(state);
  const auto width = static_cast<size_t>(state.range(0));
  const std::vector<float> gradients(kBatch * width, 0.01F);
  const uint64_t sent = on.client->sent_bytes();
  const ServersTime time(on.processes);
  size_t number = 0, rows = 0;
  while (state.KeepRunning()) {
    const auto& keys = on.batches[number++ % kBatches];
    rows += keys.size();
    const auto pushed = on.client->push({.step = static_cast<int64_t>(number), .lr = 0.01}, keys,
                                        std::span(gradients).first(keys.size() * width));
    MUSTER_CHECK(pushed.ok(), "a push");
    // As a worker does after each step.
    if (number % kUnderWay == 0) MUSTER_CHECK(on.client->wait().ok(), "it is there");
  }
  MUSTER_CHECK(on.client->wait().ok(), "it is there");
  time.report(state, rows);
  const auto payload = static_cast<double>(rows * (8 + 4 * width));
  state.counters["payload"] = static_cast<double>(on.client->sent_bytes() - sent) / payload;
}

// One row there and back: what a worker waits for.
void BM_ServedReadOne(benchmark::State& state) {
  Served& on = served(state);
  const std::vector<uint64_t> key = {7};
  while (state.KeepRunning()) MUSTER_CHECK(on.client->read(0, key).ok(), "a read");
}

void BM_ServedPushOne(benchmark::State& state) {
  Served& on = served(state);
  const std::vector<uint64_t> key = {7};
  const std::vector<float> gradient(static_cast<size_t>(state.range(0)), 0.01F);
  while (state.KeepRunning()) {
    MUSTER_CHECK(on.client->push({.lr = 0.01}, key, gradient).ok(), "a push");
    MUSTER_CHECK(on.client->wait().ok(), "it is there");
  }
}

using Seconds = std::chrono::duration<double>;
constexpr Duration kMost = std::chrono::minutes(10);  // for a copy

void BM_ServedTakeOver(benchmark::State& state) {
  Served& on = served(state);
  const auto& keys = on.batches[0];
  while (state.KeepRunning()) {
    const auto before = on.client->read(0, keys);
    const std::string victim = on.next_victim();
    const uint64_t incarnation = on.incarnation(victim);
    const auto begin = std::chrono::steady_clock::now();
    on.processes.kill(victim);
    const auto after = on.client->read(0, keys);
    state.SetIterationTime(Seconds(std::chrono::steady_clock::now() - begin).count());
    MUSTER_CHECK(before.ok() && after.ok() && *before == *after, "no row is lost");
    on.processes.start(victim);
    wait_for("a new backup", [&] { return on.is_back(victim, incarnation); }, kMost);
  }
}

void BM_ServedNewBackup(benchmark::State& state) {
  Served& on = served(state);
  const auto& keys = on.batches[0];
  const std::vector<float> gradients(keys.size() * static_cast<size_t>(state.range(0)), 0.01F);
  const bool busy = state.range(3) != 0;
  while (state.KeepRunning()) {
    const auto before = on.client->hash();
    const std::string victim = on.next_victim();
    const uint64_t incarnation = on.incarnation(victim);
    on.processes.kill(victim);
    const auto after = on.client->hash();
    MUSTER_CHECK(before.ok() && after.ok() && *before == *after, "the copy was complete");
    const auto begin = std::chrono::steady_clock::now();
    on.processes.start(victim);
    const auto is_back = [&] {
      if (busy) {
        MUSTER_CHECK(on.client->push({.lr = 0.01}, keys, gradients).ok(), "a push");
        MUSTER_CHECK(on.client->wait().ok(), "it is there");
      }
      return on.is_back(victim, incarnation);
    };
    wait_for("a new backup", is_back, kMost);
    const double seconds = Seconds(std::chrono::steady_clock::now() - begin).count();
    state.SetIterationTime(seconds);
    state.counters["s_per_GB"] = seconds / on.gigabytes();
  }
}

double longest(const std::vector<double>& values) { return *std::ranges::max_element(values); }

#define MUSTER_SHAPES \
  Args({16, 64, 1})->Args({16, 256, 1})->Args({64, 64, 1})->Args({16, 64, 2})->UseRealTime()
BENCHMARK(BM_ServedRead)->MUSTER_SHAPES;
BENCHMARK(BM_ServedPush)->MUSTER_SHAPES;
BENCHMARK(BM_ServedReadOne)->Args({16, 64, 1})->Args({16, 64, 2})->UseRealTime();
BENCHMARK(BM_ServedPushOne)->Args({16, 64, 1})->Args({16, 64, 2})->UseRealTime();

// One fault in each repetition, for the median of them.
#define MUSTER_FAULTS(times)          \
  UseManualTime()                     \
      ->Unit(benchmark::kMillisecond) \
      ->Iterations(1)                 \
      ->Repetitions(times)            \
      ->ReportAggregatesOnly()        \
      ->ComputeStatistics("longest", longest)
BENCHMARK(BM_ServedTakeOver)->Args({16, 64, 2})->MUSTER_FAULTS(30);
BENCHMARK(BM_ServedNewBackup)->Args({16, 64, 2, 0})->Args({16, 64, 2, 1})->MUSTER_FAULTS(5);

}  // namespace
}  // namespace muster::ps
