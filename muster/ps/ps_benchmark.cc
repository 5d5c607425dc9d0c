// Reading and updating rows, one thread, in the batches of a request (4,096 keys).
//
//   muster_ps_benchmark [--benchmark_filter=...]    MUSTER_ROWS: how many rows are there (2
//   million)
//
// Find: the rows are found, and nothing is read of them but their keys. What a table does more is
// the rest.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>

#include <benchmark/benchmark.h>

#include "muster/base/check.h"
#include "muster/ps/table.h"

namespace muster::ps {
namespace {

constexpr size_t kBatch = 4096;

uint64_t row_count() {
  const char* const text = std::getenv("MUSTER_ROWS");  // NOLINT(concurrency-mt-unsafe)
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 2'000'000;
}

// As on a server: many shards, each with its part of the keys.
class Store {
 public:
  explicit Store(uint32_t width) {
    options_.name = "benchmark";
    options_.width = width;
    options_.initial = InitialWeights::kZero;
    const uint64_t rows = row_count();
    while (shards_.size() < kShards) shards_.push_back(TableShard(options_, slabs_));
    std::vector<float> values(width + options_.optimizer.state(width), 0.5F);
    for (uint64_t key = 0; key < rows; ++key) {
      const Status status = shards_[shard_of(key)].put(key, 0, 1, values);
      MUSTER_CHECK(status.ok(), "there is memory");
    }
    // Batches as a worker would send them: by shard. Uniform keys are the worst case for caches.
    std::mt19937_64 random(1);
    for (size_t b = 0; b < kBatches; ++b) {
      std::vector<uint64_t> keys(kBatch);
      for (uint64_t& key : keys) key = random() % rows;
      std::ranges::sort(keys, {}, hash_of_key);
      keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
      batches_.push_back(std::move(keys));
    }
  }

  static constexpr size_t kShards = 64;
  static constexpr size_t kBatches = 64;
  static size_t shard_of(uint64_t key) { return hash_of_key(key) >> 58; }

  // visit(shard, keys) for the keys of each shard in batch `number`.
  template <typename Visit>
  size_t for_each_part(size_t number, Visit visit) {
    const auto& keys = batches_[number % kBatches];
    for (size_t begin = 0; begin < keys.size();) {
      size_t end = begin + 1;
      while (end < keys.size() && shard_of(keys[end]) == shard_of(keys[begin])) ++end;
      visit(shards_[shard_of(keys[begin])], std::span(keys).subspan(begin, end - begin), begin);
      begin = end;
    }
    return keys.size();
  }

  TableOptions options_;
  Slabs slabs_;
  std::vector<TableShard> shards_;
  std::vector<std::vector<uint64_t>> batches_;
};

Store& store_of(uint32_t width) {
  static std::map<uint32_t, std::unique_ptr<Store>> stores;
  if (!stores.contains(width)) stores.clear();  // only one fits
  auto& store = stores[width];
  if (store == nullptr) store = std::make_unique<Store>(width);
  return *store;
}

void BM_Read(benchmark::State& state) {
  const auto width = static_cast<uint32_t>(state.range(0));
  Store& store = store_of(width);
  std::vector<float> out(kBatch * width);
  size_t number = 0, rows = 0;
  while (state.KeepRunning()) {
    rows += store.for_each_part(number++, [&](TableShard& shard, auto keys, size_t begin) {
      shard.read(keys, &out[begin * width]);
    });
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(static_cast<int64_t>(rows));
}

void BM_Update(benchmark::State& state) {
  const auto width = static_cast<uint32_t>(state.range(0));
  Store& store = store_of(width);
  const std::vector<float> gradients(kBatch * width, 0.01F);
  size_t number = 0, rows = 0;
  while (state.KeepRunning()) {
    rows += store.for_each_part(number++, [&](TableShard& shard, auto keys, size_t begin) {
      const Status status =
          shard.update(keys, &gradients[begin * width], static_cast<int64_t>(number), 0.01);
      MUSTER_CHECK(status.ok(), "there is memory");
    });
  }
  state.SetItemsProcessed(static_cast<int64_t>(rows));
}

// The same rows in one table without shards, values or anything else.
void BM_Find(benchmark::State& state) {
  Slabs slabs;
  Rows rows(static_cast<size_t>(state.range(0)) + 1, slabs);
  const uint64_t count = row_count();
  for (uint64_t key = 0; key < std::min<uint64_t>(count, Rows::kMost / 2); ++key) {
    MUSTER_CHECK(rows.insert(key) != nullptr, "there is memory");
  }
  std::mt19937_64 random(1);
  std::vector<uint64_t> keys(kBatch * Store::kBatches);
  for (uint64_t& key : keys) key = random() % rows.size();
  std::vector<Row*> found(kBatch);
  size_t number = 0, done = 0;
  while (state.KeepRunning()) {
    rows.find(std::span(keys).subspan(number++ % Store::kBatches * kBatch, kBatch), found);
    benchmark::DoNotOptimize(found.data());
    done += kBatch;
  }
  state.SetItemsProcessed(static_cast<int64_t>(done));
}

BENCHMARK(BM_Find)->Arg(16)->Arg(64);
BENCHMARK(BM_Read)->Arg(16)->Arg(64);
BENCHMARK(BM_Update)->Arg(16)->Arg(64);

}  // namespace
}  // namespace muster::ps
