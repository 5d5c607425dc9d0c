// What dropout and first weights cost, beside what torch would take for the same. Each benchmark
// checks its result in the same run.
//   muster_model_benchmark --benchmark_filter=Dropout
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include "muster/model/random_fill.h"
#include "muster/model/random_words.h"

namespace muster::model {
namespace {

constexpr double kShare = 0.1;

void check_share(benchmark::State& state, double kept) {
  if (std::abs(kept - (1 - kShare)) > 0.02) state.SkipWithError("wrong share of elements kept");
}

void count(benchmark::State& state) {
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void BM_DropoutOurs(benchmark::State& state) {
  const std::vector<float> in(static_cast<size_t>(state.range(0)), 1);
  std::vector<float> out(in.size());
  uint64_t step = 0;
  for ([[maybe_unused]] const auto _ : state) {
    apply_dropout(RandomStream(1, Purpose::kDropout, ++step), kShare, in, out);
    benchmark::DoNotOptimize(out.data());
  }
  double kept = 0;
  for (const float value : out) kept += value != 0 ? 1 : 0;
  check_share(state, kept / static_cast<double>(out.size()));
  count(state);
}
BENCHMARK(BM_DropoutOurs)->Arg(1 << 14)->Arg(1 << 20);

void BM_DropoutTorch(benchmark::State& state) {
  at::set_num_threads(1);
  const at::Tensor in = at::ones({state.range(0)});
  at::Tensor out;
  for ([[maybe_unused]] const auto _ : state) {
    out = at::dropout(in, kShare, /*train=*/true);
    benchmark::DoNotOptimize(out.data_ptr());
  }
  check_share(state, out.ne(0).sum().item<double>() / static_cast<double>(out.numel()));
  count(state);
}
BENCHMARK(BM_DropoutTorch)->Arg(1 << 14)->Arg(1 << 20);

void BM_Words(benchmark::State& state, Isa isa) {
  constexpr size_t kGroups = 256;
  std::vector<uint32_t> words(kGroups * kRandomGroup);
  const RandomStream stream(1, Purpose::kDropout);
  for ([[maybe_unused]] const auto _ : state) {
    random_words(isa, stream.key(), 0, kGroups, words.data());
    benchmark::DoNotOptimize(words.data());
  }
  if (words[0] != stream.block(0)[0]) state.SkipWithError("wrong words");
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(words.size()));
}

[[maybe_unused]] const bool kWordsRegistered = [] {
  for (const Isa isa : usable_isas()) {
    benchmark::RegisterBenchmark(("BM_Words/" + std::string(isa_name(isa))).c_str(), BM_Words, isa);
  }
  return true;
}();

void BM_FillUniform(benchmark::State& state) {
  std::vector<float> out(static_cast<size_t>(state.range(0)));
  for ([[maybe_unused]] const auto _ : state) {
    fill_uniform(RandomStream(1, Purpose::kInit), -1, 1, out);
    benchmark::DoNotOptimize(out.data());
  }
  for (const float value : out) {
    if (!(value >= -1 && value < 1)) state.SkipWithError("out of range");
  }
  count(state);
}
BENCHMARK(BM_FillUniform)->Arg(1 << 20);

void BM_FillNormal(benchmark::State& state) {
  std::vector<float> out(static_cast<size_t>(state.range(0)));
  for ([[maybe_unused]] const auto _ : state) {
    fill_normal(RandomStream(1, Purpose::kInit), 0, 1, out);
    benchmark::DoNotOptimize(out.data());
  }
  double square = 0;
  for (const float value : out) square += value * value;
  if (std::abs(square / static_cast<double>(out.size()) - 1) > 0.02) {
    state.SkipWithError("wrong deviation");
  }
  count(state);
}
BENCHMARK(BM_FillNormal)->Arg(1 << 20);

}  // namespace
}  // namespace muster::model
