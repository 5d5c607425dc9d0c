#include <cstdint>

#include <benchmark/benchmark.h>

#include "muster/data/order.h"

namespace muster::data {
namespace {

// Nanoseconds per index, one after the other as the loader asks for them. The check that the
// inverse leads back runs outside the timed part.
void BM_OrderIndex(benchmark::State& state) {
  const auto n = static_cast<uint64_t>(state.range(0));
  const auto pass = Order(1, n).pass(0);
  uint64_t position = 0;
  for ([[maybe_unused]] const auto _ : state) {
    benchmark::DoNotOptimize(pass(position));
    if (++position == n) position = 0;
  }
  if (pass.position_of(pass(n / 2)) != n / 2) state.SkipWithError("not a permutation");
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_OrderIndex)->Arg(1000)->Arg(60000)->Arg(int64_t{1} << 30)->Arg((int64_t{1} << 40) - 1);

// What a new pass, and so a batch, costs before its first index.
void BM_OrderPass(benchmark::State& state) {
  const Order order(1, static_cast<uint64_t>(state.range(0)));
  uint64_t number = 0;
  for ([[maybe_unused]] const auto _ : state) benchmark::DoNotOptimize(order.pass(number++));
}
BENCHMARK(BM_OrderPass)->Arg(1000)->Arg(60000);

}  // namespace
}  // namespace muster::data
