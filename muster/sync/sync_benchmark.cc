// What the sparse code costs for each element of the weights: 6 million, of which 1 in 64 is sent.
#include <algorithm>
#include <vector>

#include <benchmark/benchmark.h>

#include "muster/base/random.h"
#include "muster/sync/block_code.h"
#include "muster/sync/sparse_code.h"

namespace muster::sync {
namespace {

constexpr size_t kElements = 6 << 20;

struct Weights {
  Weights() : layout(std::vector<size_t>{kElements}), values(layout.elements()) {
    RandomStream random(1, Purpose::kUser);
    for (float& v : values) v = random.normal();
    sparse = code.empty();
    select();
    code.quantise(values, sparse);
    code.write(sparse, bytes);
  }
  void select() {
    for (size_t b = 0; b < code.blocks(); ++b) code.select(b, values, sparse);
  }
  exact::BlockLayout layout;
  std::vector<float> values;
  SparseCode code{layout, 1, 64};
  Sparse sparse;
  std::vector<std::byte> bytes;
};

void report(benchmark::State& state) {
  state.counters["ns_per_element"] = benchmark::Counter(
      static_cast<double>(kElements) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void select(benchmark::State& state) {
  Weights weights;
  while (state.KeepRunning()) weights.select();
  report(state);
}
BENCHMARK(select)->Unit(benchmark::kMillisecond);

void quantise_and_write(benchmark::State& state) {
  Weights weights;
  while (state.KeepRunning()) {
    weights.bytes.clear();
    weights.code.quantise(weights.values, weights.sparse);
    weights.code.write(weights.sparse, weights.bytes);
  }
  report(state);
}
BENCHMARK(quantise_and_write)->Unit(benchmark::kMillisecond);

void read(benchmark::State& state) {
  Weights weights;
  while (state.KeepRunning()) {
    auto from = std::span<const std::byte>(weights.bytes);
    if (!weights.code.read(from, weights.sparse)) state.SkipWithError("not read");
  }
  report(state);
}
BENCHMARK(read)->Unit(benchmark::kMillisecond);

void merge_of_four(benchmark::State& state) {
  Weights weights;
  const std::vector<Sparse> four(4, weights.sparse);
  while (state.KeepRunning()) {
    for (size_t b = 0; b < weights.code.blocks(); ++b) {
      benchmark::DoNotOptimize(weights.code.merge(b, four, 1e-9f, weights.values));
    }
  }
  report(state);
}
BENCHMARK(merge_of_four)->Unit(benchmark::kMillisecond);

// What a replica does with its gradient, and what all do with those of four.
void encode(benchmark::State& state, const char* strategy) {
  Weights weights;
  config::SyncOptions options;
  options.strategy = strategy;
  const auto code = make_block_code(options);
  auto values = weights.values;
  while (state.KeepRunning()) {
    std::ranges::copy(weights.values, values.begin());
    for (size_t b = 0; b < weights.code.blocks(); ++b) {
      weights.bytes.clear();
      code->encode(exact::part(std::span(values), weights.layout.blocks()[b]), weights.bytes);
    }
  }
  report(state);
}
BENCHMARK_CAPTURE(encode, topk, "topk")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, threshold, "threshold")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, onebit, "onebit")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace muster::sync
