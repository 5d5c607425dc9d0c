// What an update costs, against memcpy moving as many bytes.
//
// A step of an optimizer with k state buffers reads weights, gradients and state and writes weights
// and state: 4 * (3 + 2k) bytes per element (lars and lamb read weights and gradients, lamb its
// state too, once more to measure). memcpy of that many bytes, counting both what it reads and what
// it writes, is timed in turn with it; medians:
//   ns/element   of a whole step           of_memcpy   time of the memcpy over that of the step
// Buffers of 16 MiB each, which no second cache holds. The result is verified against the same
// steps on the baseline instruction set.
// An update may beat memcpy: memory that is only written must be read into the cache first, which
// no one counts; an update writes what it has read.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "muster/optim/flat_model_testing.h"

namespace muster::optim {
namespace {

constexpr size_t kElements = size_t{4} << 20;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Blocks in order on this thread: a step without the cost of starting threads.
void step_once(FlatModel& model, const Optimizer& optimizer, int64_t step, Isa isa) {
  const StepScalars scalars{step, 1e-3, 1};
  Norms norms;
  if (optimizer.needs_norms()) {
    for (const exact::Block& block : model.layout.blocks()) {
      norms += optimizer.measure(model.view(block), model.infos[0], scalars, isa);
    }
  }
  for (const exact::Block& block : model.layout.blocks()) {
    optimizer.update(model.view(block), model.infos[0], scalars, norms, isa);
  }
}

void run_step(benchmark::State& state, const std::string& kind, double momentum) {
  config::OptimizerOptions options;
  options.kind = kind;
  options.momentum = momentum;
  options.weight_decay = 0.01;
  auto made = make_optimizer(options);
  if (!made.ok()) return state.SkipWithError(made.error().message().c_str());
  const Optimizer& optimizer = **made;

  const size_t states = optimizer.state_names().size();
  const std::vector<size_t> sizes = {kElements};
  FlatModel model({{"weight", 2}}, sizes, states, 1);
  model.draw_gradient(1, 0);
  FlatModel check = model;

  size_t floats = 3 + 2 * states;
  if (optimizer.needs_norms()) floats += kind == "lamb" ? 2 + states : 2;
  std::vector<char> from(floats * sizeof(float) * kElements / 2, 1);
  std::vector<char> to(from.size());

  using Clock = std::chrono::steady_clock;
  std::vector<double> ours, theirs;
  int64_t steps = 0;
  for ([[maybe_unused]] const auto _ : state) {
    const auto start = Clock::now();
    step_once(model, optimizer, steps++, best_isa());
    const auto middle = Clock::now();
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
    ours.push_back(std::chrono::duration<double>(middle - start).count());
    theirs.push_back(std::chrono::duration<double>(Clock::now() - middle).count());
    state.SetIterationTime(ours.back());
  }
  for (int64_t step = 0; step < steps; ++step) step_once(check, optimizer, step, Isa::kBaseline);
  if (check.weights != model.weights) return state.SkipWithError("wrong weights");
  state.counters["ns/element"] = 1e9 * median(ours) / static_cast<double>(kElements);
  state.counters["of_memcpy"] = median(theirs) / median(ours);
}

void steps(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(0.3);
}
BENCHMARK_CAPTURE(run_step, sgd, "sgd", 0.0)->Apply(steps);
BENCHMARK_CAPTURE(run_step, momentum, "sgd", 0.9)->Apply(steps);
BENCHMARK_CAPTURE(run_step, adam, "adam", 0.0)->Apply(steps);
BENCHMARK_CAPTURE(run_step, adamw, "adamw", 0.0)->Apply(steps);
BENCHMARK_CAPTURE(run_step, adagrad, "adagrad", 0.0)->Apply(steps);
BENCHMARK_CAPTURE(run_step, rmsprop, "rmsprop", 0.0)->Apply(steps);
BENCHMARK_CAPTURE(run_step, rmsprop_momentum, "rmsprop", 0.9)->Apply(steps);
BENCHMARK_CAPTURE(run_step, lars, "lars", 0.9)->Apply(steps);
BENCHMARK_CAPTURE(run_step, lamb, "lamb", 0.0)->Apply(steps);

}  // namespace
}  // namespace muster::optim
