#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>

#include "muster/data/blocks/blocks_testing.h"
#include "muster/data/blocks/strata.h"

namespace muster::data {
namespace {

constexpr uint64_t kLanes = 8;
constexpr uint64_t kBatch = 256;

std::shared_ptr<const BlockIndex> index_of(int64_t blocks, int64_t per_block) {
  return std::make_shared<const BlockIndex>(testing::make_index(
      std::vector<uint32_t>(static_cast<size_t>(blocks), static_cast<uint32_t>(per_block)), 4000));
}

// Time per sample, batch after batch of one lane, as the loader asks for them; outside of the timed
// part the inverse must lead back. Arguments: blocks, samples per block. The window is 64 MiB, a
// sample 4 kB.
void BM_StrataSample(benchmark::State& state) {
  const auto index = index_of(state.range(0), state.range(1));
  const Strata order(index, 1, kBatch, kLanes, strata_shape(*index, kLanes, {}));
  const BatchPlan plan{.batch = kBatch, .lanes = kLanes};
  std::vector<uint64_t> samples(kBatch / kLanes);
  uint64_t step = 0;
  order.samples(lane_slice(plan, step, 3), samples);  // the tables are made
  // All within the first pass.
  const uint64_t steps = index->samples() / kBatch;
  for ([[maybe_unused]] const auto _ : state) {
    order.samples(lane_slice(plan, step, 3), samples);
    benchmark::DoNotOptimize(samples.data());
    if (++step == steps) step = 0;
  }
  const Slice last = lane_slice(plan, steps / 2, 3);
  order.samples(last, samples);
  for (size_t i = 0; i < samples.size(); ++i) {
    if (order.position_of(0, samples[i]) != last.first + i) state.SkipWithError("no permutation");
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(samples.size()));
  state.counters["tracks"] = static_cast<double>(order.shape().tracks);
}
BENCHMARK(BM_StrataSample)
    ->Args({1000, 100})
    ->Args({10000, 1000})
    ->Args({100000, 40})
    ->Args({1000000, 1000});

// What the first batch of a lane costs: its tables. Arguments: blocks, samples per block, and where
// the batch is, in percent of the pass.
void BM_StrataFirstBatch(benchmark::State& state) {
  const auto index = index_of(state.range(0), state.range(1));
  const StrataShape shape = strata_shape(*index, kLanes, {});
  const BatchPlan plan{.batch = kBatch, .lanes = kLanes};
  std::vector<uint64_t> samples(kBatch / kLanes);
  const uint64_t step = index->samples() / kBatch * static_cast<uint64_t>(state.range(2)) / 100;
  for ([[maybe_unused]] const auto _ : state) {
    const Strata order(index, 1, kBatch, kLanes, shape);
    order.samples(lane_slice(plan, step, 3), samples);
    benchmark::DoNotOptimize(samples.data());
  }
}
BENCHMARK(BM_StrataFirstBatch)
    ->Args({1000000, 1000, 0})
    ->Args({1000000, 1000, 99})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace muster::data
